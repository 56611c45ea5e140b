// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

const (
	// ownedEvery is the interval of checks of what the leader writes, which others may have changed.
	ownedEvery = 10 * time.Second
	// callTimeout bounds each call of the API server.
	callTimeout = 30 * time.Second
	// hashAnnotation of the ConfigMaps kerf-profiles and kerf-config-last-good says of which document they are: the
	// hash of kerf-config that held. kerf-scheduler writes it.
	hashAnnotation = sharing.Domain + "/sharing-config-hash"
)

// amountWriter keeps a ConfigMap in line with the applied config. It has the amounts of each profile, for admission
// policies, which can read a ConfigMap and not the config.
type amountWriter struct{ owned }

// policyGlob are the globs that admission policies evaluate. The node evaluates all of them.
var policyGlob = regexp.MustCompile(`^!?[A-Za-z0-9*?-]+$`)

// amountsOf are the profiles' amounts in the words of the ConfigMap, by the profile's name, with spaces between them.
// They are RESOURCE=COUNT of each limit, and "privileged" if its pods may have privileged containers. The globs of its
// namespaces follow "namespaces:". A profile without any is left out.
func amountsOf(profiles []config.Profile) map[string]string {
	out := map[string]string{}
	for _, p := range profiles {
		var words []string
		for _, a := range p.Requests() {
			words = append(words, fmt.Sprintf("%s/%s=%d", sharing.Domain, a.Resource, a.Count))
		}
		if p.AllowPrivileged {
			words = append(words, "privileged")
		}
		odd := func(glob string) bool { return !policyGlob.MatchString(glob) }
		if len(p.Namespaces) > 0 && !slices.ContainsFunc(p.Namespaces, odd) {
			words = append(words, "namespaces:"+strings.Join(p.Namespaces, ","))
		}
		if len(words) > 0 {
			out[p.Name] = strings.Join(words, " ")
		}
	}
	return out
}

// look writes the amounts if they differ from the applied config.
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
		return fmt.Errorf("pods that name a profile and no amounts are refused, until it is there or profileAmounts "+
			"is no longer in the scheduler's configuration: %w", err)
	}
	if written {
		klog.FromContext(ctx).Info("wrote the amounts of profiles", "configMap", klog.KRef(a.namespace, a.name),
			"sha256", hash, "profiles", len(want))
	}
	return err
}

// owned is a ConfigMap whose data belong to the leading scheduler alone.
type owned struct {
	rules           *Rules
	client          clientset.Interface
	namespace, name string
	// host is where this scheduler runs.
	host string
}

// newOwned takes namespace/name.
func newOwned(r *Rules, client clientset.Interface, configMap, host string) owned {
	namespace, name, _ := strings.Cut(configMap, "/")
	return owned{rules: r, client: client, namespace: namespace, name: name, host: host}
}

// String names it.
func (o owned) String() string { return "configmap " + o.namespace + "/" + o.name }

func (o owned) read(ctx context.Context) (*corev1.ConfigMap, error) {
	m, err := o.client.CoreV1().ConfigMaps(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s is not there; put it back with 'helm upgrade': %w", o, err)
	} else if err != nil {
		return nil, fmt.Errorf("read %s: %w", o, err)
	}
	return m, nil
}

// write sets the data, with the hash of its config, and reports whether they were different.
func (o owned) write(ctx context.Context, data map[string]string, hash string) (bool, error) {
	m, err := o.read(ctx)
	if err != nil || maps.Equal(m.Data, data) && m.Annotations[hashAnnotation] == hash {
		return false, err
	}
	m = m.DeepCopy()
	m.Data = data
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[hashAnnotation] = hash
	if _, err := o.client.CoreV1().ConfigMaps(o.namespace).Update(ctx, m, metav1.UpdateOptions{}); err != nil {
		return false, fmt.Errorf("write %s: %w", o, err)
	}
	return true, nil
}

// keep looks at once, whenever something is due, and every so often, until ctx ends. What goes wrong is said once, and
// what that means with it.
func (o owned) keep(ctx context.Context, due <-chan struct{}, every time.Duration, look func(context.Context) error,
	means string) {
	t := time.NewTicker(every)
	defer t.Stop()
	said := ""
	for {
		err := look(ctx)
		if err != nil && err.Error() != said && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, means)
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-t.C:
		}
	}
}
