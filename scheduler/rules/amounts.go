// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

const (
	// ownedEvery is how often what the leader writes is looked at again, which somebody may have changed.
	ownedEvery = 10 * time.Second
	// callTimeout bounds each call of the API server.
	callTimeout = 30 * time.Second
	// hashAnnotation of the ConfigMaps kerf-profiles and kerf-config-last-good says of which document they are: the hash of kerf-config that held. kerf-scheduler writes it.
	hashAnnotation = sharing.Domain + "/sharing-config-hash"
)

// amountWriter keeps a ConfigMap as the document in force has it: which amounts each profile gives, for the admission policies,
// which can read a ConfigMap and not the document.
type amountWriter struct{ owned }

// amountsOf are the profiles' amounts in the words of the ConfigMap: by the profile's name, RESOURCE=COUNT of each limit, and
// "privileged" where its pods may have privileged containers; spaces between them. Left out is a profile that has nothing to say.
func amountsOf(profiles []config.Profile) map[string]string {
	out := map[string]string{}
	for _, p := range profiles {
		var words []string
		for _, a := range p.Asks() {
			words = append(words, fmt.Sprintf("%s/%s=%d", sharing.Domain, a.Resource, a.Count))
		}
		if p.Privileged {
			words = append(words, "privileged")
		}
		if len(words) > 0 {
			out[p.Name] = strings.Join(words, " ")
		}
	}
	return out
}

// look writes the amounts if they are not as the document in force has them.
func (a amountWriter) look(ctx context.Context) error {
	a.rules.mu.Lock()
	hash, want := a.rules.hash, amountsOf(a.rules.profiles)
	a.rules.mu.Unlock()
	if hash == "" || !a.rules.Leads(a.host) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	written, err := a.write(ctx, want, hash)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("pods that name a profile and no amounts are refused, until it is there or profileAmounts is no longer in the scheduler's configuration: %w", err)
	}
	if written {
		klog.FromContext(ctx).Info("The profiles' amounts are written", "configMap", klog.KRef(a.namespace, a.name), "sha256", hash, "profiles", len(want))
	}
	return err
}
