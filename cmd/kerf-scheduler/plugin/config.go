// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

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
	"k8s.io/klog/v2"

	"github.com/kerf-gpu/kerf/sharing/config"
	"github.com/kerf-gpu/kerf/sharing/config/change"
)

const (
	// rereadEvery is how often the file of the agents' configuration is looked at again: kubelet changes the file of a
	// ConfigMap in place.
	rereadEvery = 10 * time.Second
	// configQuiet is how long no further change must have come before one is carried out, and configMost how long is waited
	// for that: the agents' times.
	configQuiet = time.Second
	configMost  = 30 * time.Second
)

// configure reads the agents' configuration from the file, and takes it whole or not at all.
func (c *core) configure(ctx context.Context, args Args) error {
	if args.SharingConfig == "" {
		return nil
	}
	found := fileCandidate(args.SharingConfig)
	if found.Err != nil {
		return found.Err
	}
	c.take(ctx, found)
	return nil
}

// take puts a valid document in force.
func (c *core) take(ctx context.Context, found change.Candidate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules == found.Hash {
		return
	}
	c.rules = found.Hash
	c.books.Configure(found.Config)
	c.profiles = found.Config.Profiles()
	c.shown.inForce(found.Hash)
	c.tellAmounts()
	klog.FromContext(ctx).Info("The sharing config is in force", "sha256", found.Hash, "from", found.From)
}

// candidate reads a document.
func candidate(from string, files []config.File) change.Candidate {
	c := change.Candidate{From: from, Hash: config.Hash(files), Files: files}
	if c.Config, c.Err = config.DecodeFiles(files...); c.Err != nil {
		c.Err = fmt.Errorf("sharing config of %s: %w", from, c.Err)
	}
	return c
}

// fileCandidate reads the document of a file, or of all files of a folder.
func fileCandidate(path string) change.Candidate {
	files, err := readFiles(path)
	if err != nil {
		return change.Candidate{From: path, Hash: "unreadable", Err: fmt.Errorf("read the sharing config: %w", err)}
	}
	return candidate(path, files)
}

// readFiles reads a document from a file, or from all files of a folder.
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

// followRules keeps to the document, and the profiles' amounts to it, until ctx ends.
func (c *core) followRules(ctx context.Context, args Args, client clientset.Interface) error {
	var found <-chan change.Candidate
	if args.SharingConfigMap != "" {
		var err error
		if found, err = c.watchRules(ctx, client, args.SharingConfigMap); err != nil {
			return err
		}
	}
	c.running.Go(func() { c.reread(ctx, args, found, rereadEvery) })
	if args.ProfileAmounts == "" {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this scheduler, as its lease has it: %w", err)
	}
	a := newAmountWriter(c, client, args.ProfileAmounts, host)
	c.running.Go(func() { a.run(ctx, amountsEvery) })
	return nil
}

// watchRules tells the documents that a ConfigMap holds, until ctx ends. What is told while the ConfigMap is away, or has not
// changed, is nothing.
func (c *core) watchRules(ctx context.Context, client clientset.Interface, configMap string) (<-chan change.Candidate, error) {
	namespace, name, _ := strings.Cut(configMap, "/")
	informer := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace), informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	})).Core().V1().ConfigMaps().Informer()
	found := make(chan change.Candidate)
	_, err := informer.AddEventHandler(handlers(func(m *corev1.ConfigMap) {
		if m.Name != name {
			return
		}
		select {
		case found <- candidate("configmap "+configMap, config.FilesOf(m.Data)):
		case <-ctx.Done():
		}
	}, func(*corev1.ConfigMap) {}))
	if err != nil {
		return nil, fmt.Errorf("follow configmap %s: %w", configMap, err)
	}
	c.running.Go(func() { informer.RunWithContext(ctx) })
	return found, nil
}

// reread follows the document until ctx ends: in the ConfigMap, and until that has been seen in the file, which is late. Of
// documents that follow each other quickly the last valid one is taken, once. One with mistakes is told once, and changes
// nothing.
func (c *core) reread(ctx context.Context, args Args, found <-chan change.Candidate, every time.Duration) {
	s := change.Settling{Quiet: configQuiet, Most: configMost}
	c.mu.Lock()
	s.Seen(c.rules)
	c.mu.Unlock()
	look := time.NewTicker(every)
	defer look.Stop()
	file := args.SharingConfig
	for {
		good, bad, wait := s.Due(time.Now())
		if good != nil {
			c.take(ctx, *good)
		}
		if bad != nil {
			c.shown.refused()
			klog.FromContext(ctx).Error(bad.Err, "The sharing config is not taken; what was read before stays in force")
		}
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
			s.Offer(time.Now(), candidate)
		case <-look.C:
			if file != "" {
				s.Offer(time.Now(), fileCandidate(file))
			}
		case <-due.C:
		}
		due.Stop()
	}
}
