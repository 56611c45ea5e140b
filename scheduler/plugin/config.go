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

// configure reads the agents' configuration from the file, takes it whole or not at all, and returns the hash of what it read.
// A scheduler that ended for a document with mistakes would leave its cluster without one: it goes on, by the last good document
// or by none.
func (c *core) configure(ctx context.Context, args Args) (seen string) {
	switch {
	case args.SharingConfig != "":
		found := fileCandidate(args.SharingConfig)
		if found.Err != nil {
			c.refuse(ctx, found)
		} else {
			c.take(ctx, found)
		}
		return found.Hash
	case args.SharingConfigMap != "":
		c.mu.Lock()
		c.refusal = fmt.Errorf("configmap %s was not read yet", args.SharingConfigMap)
		c.mu.Unlock()
	}
	return ""
}

// take puts a valid document in force.
func (c *core) take(ctx context.Context, found change.Candidate) { c.put(ctx, found, false) }

// put puts a valid document in force, where first is true only if none is.
func (c *core) put(ctx context.Context, found change.Candidate, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules == found.Hash || first && c.rules != "" {
		return
	}
	c.rules, c.files = found.Hash, found.Files
	c.books.Configure(found.Config)
	c.profiles = found.Config.Profiles()
	c.shown.inForce(found.Hash)
	c.tellOwned()
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

// followRules keeps to the document, and what the leader writes to it, until ctx ends. seen is the hash of what was read already.
func (c *core) followRules(ctx context.Context, args Args, client clientset.Interface, seen string) error {
	var found <-chan change.Candidate
	if args.SharingConfigMap != "" {
		var err error
		if found, err = c.watchRules(ctx, client, args.SharingConfigMap); err != nil {
			return err
		}
	}
	c.running.Go(func() { c.reread(ctx, args, found, rereadEvery, seen) })
	if args.ProfileAmounts == "" && args.LastGoodConfigMap == "" {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this scheduler, as its lease has it: %w", err)
	}
	if args.ProfileAmounts != "" {
		a := amountWriter{newOwned(c, client, args.ProfileAmounts, host)}
		c.running.Go(func() {
			a.keep(ctx, c.amountsDue, ownedEvery, a.look, "The profiles' amounts are not written; pods that name a profile get those that were written last")
		})
	}
	if args.LastGoodConfigMap != "" {
		l := lastGood{newOwned(c, client, args.LastGoodConfigMap, host)}
		c.running.Go(func() {
			l.keep(ctx, c.lastGoodDue, ownedEvery, l.look, "The last good sharing config is not kept, or was not found where it is kept")
		})
	}
	return nil
}

// tellOwned has what the leader writes looked at now. It does not wait.
func (c *core) tellOwned() {
	for _, due := range []chan struct{}{c.amountsDue, c.lastGoodDue} {
		select {
		case due <- struct{}{}:
		default:
		}
	}
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
// nothing. seen is the hash of what was read already.
func (c *core) reread(ctx context.Context, args Args, found <-chan change.Candidate, every time.Duration, seen string) {
	s := change.Settling{Quiet: configQuiet, Most: configMost}
	s.Seen(seen)
	look := time.NewTicker(every)
	defer look.Stop()
	file := args.SharingConfig
	for {
		good, bad, wait := s.Due(time.Now())
		if good != nil {
			c.take(ctx, *good)
		}
		if bad != nil {
			c.refuse(ctx, *bad)
		}
		c.tellRefusal()
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
