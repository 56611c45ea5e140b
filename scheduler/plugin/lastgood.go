// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

// lastGood keeps a copy of the document in force in a ConfigMap of its own, and takes it from there where a scheduler starts
// while the document has mistakes. Like the profiles' amounts it is written by the scheduler that leads alone, and it is not
// made here: it belongs to who installed Kerf.
type lastGood struct{ owned }

// look writes the copy where it is another, or takes it where a document was refused and none is in force.
func (l lastGood) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l.core.mu.Lock()
	hash, leads, refused := l.core.rules, l.leads(), l.core.refusal != nil
	data := make(map[string]string, len(l.core.files))
	for _, f := range l.core.files {
		data[f.Name] = string(f.Data)
	}
	l.core.mu.Unlock()
	switch {
	case hash == "" && refused:
		return l.restore(ctx)
	case hash == "" || !leads:
		return nil
	}
	_, err := l.write(ctx, data, hash)
	return err
}

// restore puts the copy in force unless a document is by now. Who has changed it has not made it the last good one.
func (l lastGood) restore(ctx context.Context) error {
	m, err := l.read(ctx)
	if err != nil {
		return err
	}
	found := candidate(l.String(), config.FilesOf(m.Data))
	switch {
	case len(found.Files) == 0:
		return fmt.Errorf("%s has no document yet", l)
	case found.Hash != m.Annotations[hashAnnotation]:
		return fmt.Errorf("%s is not what a scheduler wrote: its document has the sha256 %s, and its annotation says %q", l, found.Hash, m.Annotations[hashAnnotation])
	case found.Err != nil:
		return found.Err
	}
	l.core.put(ctx, found, true)
	return nil
}

// owned is a ConfigMap whose data are the leading scheduler's, and nobody else's.
type owned struct {
	core            *core
	client          clientset.Interface
	namespace, name string
	// me is how a lease names this scheduler, up to a part that is chosen at random.
	me string
}

// newOwned takes namespace/name.
func newOwned(c *core, client clientset.Interface, configMap, host string) owned {
	namespace, name, _ := strings.Cut(configMap, "/")
	return owned{core: c, client: client, namespace: namespace, name: name, me: host + "_"}
}

// String names it.
func (o owned) String() string { return "configmap " + o.namespace + "/" + o.name }

// leads is asked with mu held. A scheduler that stands by writes nothing, so that one that is late does not take back what the
// leader wrote.
func (o owned) leads() bool { return !o.core.elected || strings.HasPrefix(o.core.leader, o.me) }

func (o owned) read(ctx context.Context) (*corev1.ConfigMap, error) {
	m, err := o.client.CoreV1().ConfigMaps(o.namespace).Get(ctx, o.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("%s is not there; put it back with 'helm upgrade': %w", o, err)
	} else if err != nil {
		return nil, fmt.Errorf("read %s: %w", o, err)
	}
	return m, nil
}

// write makes the data what they are to be, by the document of this hash, and tells whether they were anything else.
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

// keep looks at once, whenever something is due, and every so often, until ctx ends. What goes wrong is said once, and what
// that means with it.
func (o owned) keep(ctx context.Context, due <-chan struct{}, every time.Duration, look func(context.Context) error, means string) {
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

// mostNote is the most bytes of an event's text that the API server takes, with room for what is put around it.
const mostNote = 900

// refuse takes note of a document that is not taken. What is in force stays; where nothing is, the last good one is asked for, and
// until that or another is there no pod is placed that asks for a GPU.
func (c *core) refuse(ctx context.Context, found change.Candidate) {
	c.mu.Lock()
	c.refusal, c.untold = found.Err, found.Err
	rules := c.rules
	c.mu.Unlock()
	c.shown.refused()
	if log := klog.FromContext(ctx); rules != "" {
		log.Error(found.Err, "The sharing config is not taken; what was read before stays in force", "sha256", found.Hash, "inForce", rules)
	} else {
		log.Error(found.Err, "The sharing config is not taken; until the last good one is found no pod is placed that asks for a GPU", "sha256", found.Hash)
	}
	c.tellOwned()
}

// tellRefusal writes the event of a document that was refused, once; not before the events of a scheduler that starts are
// heard, which is when its lists are read.
func (c *core) tellRefusal() {
	if c.event == nil || !c.listed() {
		return
	}
	c.mu.Lock()
	untold, rules := c.untold, c.rules
	c.untold = nil
	c.mu.Unlock()
	if untold == nil {
		return
	}
	stays := "no earlier one is known, and pods that ask for a GPU wait"
	if rules != "" {
		stays = "the document with the sha256 " + rules + " stays in force"
	}
	c.event(fmt.Sprintf("kerf-scheduler does not take the sharing configuration: %s: %s", stays, shortened(mistakes(untold), mostNote-len(stays))))
}

// shortened leaves at most so many bytes.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// errRules is why nothing is placed while a scheduler knows no valid document.
var errRules = errors.New("kerf-scheduler knows no valid sharing configuration, and gives no GPU without one")

// ruled is an error while there are to be rules and there are none.
func (c *core) ruled() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules != "" || c.refusal == nil {
		return nil
	}
	return fmt.Errorf("%w: %s; mend it, as 'kerf config validate' says", errRules, shortened(mistakes(c.refusal), mostNote))
}
