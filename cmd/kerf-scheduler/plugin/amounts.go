// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sharing/config"
)

const (
	// amountsEvery is how often the profiles' amounts are looked at again, which somebody may have changed.
	amountsEvery = 10 * time.Second
	// leaderLease is the lease of the scheduler that decides, in leaseNamespace.
	leaderLease = "kerf-scheduler"
	// hashAnnotation of the ConfigMap kerf-profiles says by which document its amounts are: the hash of kerf-config that held. kerf-scheduler writes it.
	hashAnnotation = sharing.Domain + "/sharing-config-hash"
)

// amountWriter keeps a ConfigMap as the document in force has it: which amounts each profile gives, for the admission policies,
// which can read a ConfigMap and not the document. A scheduler that stands by leaves it alone, so that one that is late does
// not take back what the leader wrote. It does not make the ConfigMap, which belongs to who installed Kerf and goes with it.
type amountWriter struct {
	*core
	client          clientset.Interface
	namespace, name string
	// me is how a lease names this scheduler, up to a part that is chosen at random.
	me string
}

// newAmountWriter takes namespace/name.
func newAmountWriter(c *core, client clientset.Interface, configMap, host string) amountWriter {
	namespace, name, _ := strings.Cut(configMap, "/")
	return amountWriter{core: c, client: client, namespace: namespace, name: name, me: host + "_"}
}

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

// tellAmounts has the amounts looked at now. It does not wait.
func (c *core) tellAmounts() {
	select {
	case c.amountsDue <- struct{}{}:
	default:
	}
}

func (a amountWriter) run(ctx context.Context, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	said := ""
	for {
		err := a.look(ctx)
		if err != nil && err.Error() != said && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The profiles' amounts are not written; pods that name a profile get those that were written last")
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-a.amountsDue:
		case <-t.C:
		}
	}
}

// look writes the amounts if they are not as the document in force has them.
func (a amountWriter) look(ctx context.Context) error {
	a.mu.Lock()
	hash, leads := a.rules, !a.elected || strings.HasPrefix(a.leader, a.me)
	want := amountsOf(a.profiles)
	a.mu.Unlock()
	if hash == "" || !leads {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := a.client.CoreV1().ConfigMaps(a.namespace).Get(ctx, a.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("configmap %s/%s is not there, and pods that name a profile and no amounts are refused; "+
			"put it back with 'helm upgrade', or take profileAmounts out of the scheduler's configuration: %w", a.namespace, a.name, err)
	} else if err != nil {
		return fmt.Errorf("read configmap %s/%s: %w", a.namespace, a.name, err)
	}
	if maps.Equal(m.Data, want) && m.Annotations[hashAnnotation] == hash {
		return nil
	}
	m = m.DeepCopy()
	m.Data = want
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[hashAnnotation] = hash
	if _, err := a.client.CoreV1().ConfigMaps(a.namespace).Update(ctx, m, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write configmap %s/%s: %w", a.namespace, a.name, err)
	}
	klog.FromContext(ctx).Info("The profiles' amounts are written", "configMap", klog.KRef(a.namespace, a.name), "sha256", hash, "profiles", len(want))
	return nil
}
