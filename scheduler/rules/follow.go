// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"

	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

const (
	// rereadEvery is how often the file of the agents' configuration is looked at again: kubelet changes the file of a
	// ConfigMap in place.
	rereadEvery = 10 * time.Second
	// configQuiet is how long no further change must have come before one is applied. It waits for that as long as
	// configMost. These are the agents' times.
	configQuiet = time.Second
	configMost  = 30 * time.Second
)

// candidate reads a config.
func candidate(from string, files []config.File) change.Candidate {
	c := change.Candidate{From: from, Hash: config.Hash(files), Files: files}
	if c.Config, c.Err = config.DecodeFiles(files...); c.Err != nil {
		c.Err = fmt.Errorf("sharing config of %s: %w", from, c.Err)
	}
	return c
}

// fileCandidate reads the config of a file, or of all files of a folder.
func fileCandidate(path string) change.Candidate {
	files, err := readFiles(path)
	if err != nil {
		return change.Candidate{From: path, Hash: "unreadable", Err: fmt.Errorf("read the sharing config: %w", err)}
	}
	return candidate(path, files)
}

// readFiles reads a config from a file, or from all files of a folder.
func readFiles(path string) ([]config.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	names := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		names = nil
		for _, e := range entries {
			if config.IsFile(e.Name()) && !strings.HasPrefix(e.Name(), ".") {
				names = append(names, filepath.Join(path, e.Name()))
			}
		}
	}
	var files []config.File
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, config.File{Name: filepath.Base(name), Data: data})
	}
	return files, nil
}

// Watch applies the config, and what the leader writes to it, until ctx ends. seen is the hash of what Read read. If
// event is not nil, it writes an event about a rejected config, once started says that events are heard.
func (r *Rules) Watch(ctx context.Context, from Sources, client clientset.Interface, seen string,
	event func(note string), started func() bool) error {
	var found <-chan change.Candidate
	if from.ConfigMap != "" {
		var err error
		if found, err = r.watchRules(ctx, client, from.ConfigMap); err != nil {
			return err
		}
	}
	r.running.Go(func() {
		r.reread(ctx, from.File, found, rereadEvery, seen, func() { r.tellRefusal(event, started) })
	})
	if from.ProfileAmounts == "" && from.LastGood == "" {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this scheduler, as its lease has it: %w", err)
	}
	if from.ProfileAmounts != "" {
		a := amountWriter{newOwned(r, client, from.ProfileAmounts, host)}
		r.running.Go(func() {
			a.keep(ctx, r.amountsDue, ownedEvery, a.look,
				"The profiles' amounts are not written; pods that name a profile get those that were written last")
		})
	}
	if from.LastGood != "" {
		l := lastGood{newOwned(r, client, from.LastGood, host)}
		r.running.Go(func() {
			l.keep(ctx, r.lastGoodDue, ownedEvery, l.look,
				"The last good sharing config is not kept, or was not found where it is kept")
		})
	}
	return nil
}

// watchRules sends the configs that a ConfigMap has, until ctx ends. It sends nothing while the ConfigMap is absent
// or unchanged.
func (r *Rules) watchRules(ctx context.Context, client clientset.Interface, configMap string) (<-chan change.Candidate,
	error) {
	namespace, name, _ := strings.Cut(configMap, "/")
	informer := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		})).Core().V1().ConfigMaps().Informer()
	found := make(chan change.Candidate)
	tell := func(object any) {
		m, ok := object.(*corev1.ConfigMap)
		if !ok || m.Name != name {
			return
		}
		select {
		case found <- candidate("configmap "+configMap, config.FilesOf(m.Data)):
		case <-ctx.Done():
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell,
		UpdateFunc: func(_, m any) { tell(m) }})
	if err != nil {
		return nil, fmt.Errorf("follow configmap %s: %w", configMap, err)
	}
	r.running.Go(func() { informer.RunWithContext(ctx) })
	return found, nil
}

// reread follows the config until ctx ends: in the ConfigMap, and before that is seen in the file, which is late.
// After several quick changes it takes the last valid one, once. One with errors is reported once and changes
// nothing. seen is the hash of what was read already.
func (r *Rules) reread(ctx context.Context, file string, found <-chan change.Candidate, every time.Duration,
	seen string, refused func()) {
	s := change.Settling{StableFor: configQuiet, MaxWait: configMost}
	s.Seen(seen)
	look := time.NewTicker(every)
	defer look.Stop()
	for {
		good, bad, wait := s.Due(time.Now())
		if good != nil {
			r.take(ctx, *good)
		}
		if bad != nil {
			r.refuse(ctx, *bad)
		}
		refused()
		due := time.NewTimer(max(wait, time.Millisecond))
		if wait == 0 {
			due.Stop()
		}
		select {
		case <-ctx.Done():
			due.Stop()
			return
		case candidate := <-found:
			file = ""
			s.Add(time.Now(), candidate)
		case <-look.C:
			if file != "" {
				s.Add(time.Now(), fileCandidate(file))
			}
		case <-due.C:
		}
		due.Stop()
	}
}

// lastGood keeps a copy of the applied config in a separate ConfigMap, and restores it if a scheduler starts while
// the config has errors. Like the profiles' amounts, only the leading scheduler writes it. The installation creates
// it.
type lastGood struct{ owned }

// look writes the copy if it differs, or restores it if a config was rejected and none is applied.
func (l lastGood) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l.rules.mu.Lock()
	hash, refused := l.rules.hash, l.rules.refusal != nil
	data := make(map[string]string, len(l.rules.files))
	files := config.ForRollback(l.rules.files)
	for _, f := range files {
		data[f.Name] = string(f.Data)
	}
	l.rules.mu.Unlock()
	switch {
	case hash == "" && refused:
		return l.restore(ctx)
	case hash == "" || !l.rules.Leads(l.host):
		return nil
	}
	_, err := l.write(ctx, data, config.Hash(files))
	return err
}

// restore applies the copy unless a config is applied by now. A copy that was changed is not the last known good
// config.
func (l lastGood) restore(ctx context.Context) error {
	m, err := l.read(ctx)
	if err != nil {
		return err
	}
	kept := config.FilesOf(m.Data)
	switch hash := config.Hash(kept); {
	case len(kept) == 0:
		return fmt.Errorf("%s has no config yet", l)
	case hash != m.Annotations[hashAnnotation]:
		return fmt.Errorf("%s was not written by a scheduler: its config has the SHA-256 %s, and its annotation says "+
			"%q",
			l, hash, m.Annotations[hashAnnotation])
	}
	found := candidate(l.String(), config.Current(kept))
	if found.Err != nil {
		return found.Err
	}
	l.rules.put(ctx, found, true)
	return nil
}

// configMetrics show which config the scheduler applies. The zero value has no metrics.
type configMetrics struct {
	info   *metrics.GaugeVec
	errors *metrics.Counter
}

// Register makes metrics known to who is asked for them, as legacyregistry.Register does for kube-scheduler's /metrics.
type Register = func(metrics.Registerable) error

func newConfigMetrics(register Register) (configMetrics, error) {
	m := configMetrics{
		info: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name: "kerf_scheduler_config_info", Help: "1 for the config of this replica, by its SHA-256. Absent " +
				"without a valid config; the replica then places no GPU pods.", StabilityLevel: metrics.ALPHA,
		}, []string{"sha256"}),
		errors: metrics.NewCounter(&metrics.CounterOpts{
			Name: "kerf_scheduler_config_errors_total", Help: "Configs that were rejected because of errors.",
			StabilityLevel: metrics.ALPHA,
		}),
	}
	for _, one := range []metrics.Registerable{m.info, m.errors} {
		if err := register(one); err != nil {
			return m, err
		}
	}
	return m, nil
}

// inForce tells which document is gone by from now on.
func (m configMetrics) inForce(sha256 string) {
	if m.info == nil {
		return
	}
	m.info.Reset()
	m.info.WithLabelValues(sha256).Set(1)
}

// refused counts a rejected config.
func (m configMetrics) refused() {
	if m.errors != nil {
		m.errors.Inc()
	}
}
