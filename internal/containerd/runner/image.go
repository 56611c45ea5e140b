// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	dockerconfig "github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/containerd/platforms"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	base "github.com/kerf-gpu/kerf/internal/containerd"
	"github.com/kerf-gpu/kerf/sharing"
)

// Pull says when an image is fetched from its registry.
type Pull string

// The ways to pull.
const (
	// PullMissing: when this machine does not have it.
	PullMissing Pull = "missing"
	// PullAlways: every time, so that a moved tag is followed.
	PullAlways Pull = "always"
	// PullNever: not at all.
	PullNever Pull = "never"
)

const (
	// pullTimeout bounds the whole way of an image onto this machine.
	pullTimeout = time.Hour
	// hostsDir configures registries, as for containerd's own tools.
	hostsDir = "/etc/containerd/certs.d"
)

// errNoImage: the runtime answers, and has no such image.
var errNoImage = fmt.Errorf("not on this machine: %w", sharing.ErrNotFound)

// Image is an image in the namespace of kerf, unpacked and ready to run.
type Image struct {
	// Name is its full name, such as "docker.io/library/busybox:1.36".
	Name  string
	image containerd.Image
}

// Image gets the image that ref names from the namespace of kerf. Else it takes it from those of other tools on this
// machine (it then shares the content), else from its registry as pull says. A short ref means the same as for Docker.
// It calls notice before a slow step. Errors: ErrNotFound, ErrInvalid for a ref that names no image, ErrUnavailable.
func (c *Client) Image(ctx context.Context, ref string, pull Pull, notice func(string)) (*Image, error) {
	name, err := FullName(ref)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(namespaces.WithNamespace(ctx, base.NamespaceKerf), pullTimeout)
	defer cancel()
	var image containerd.Image
	if pull != PullAlways {
		image, err = c.local(ctx, ref, name)
		if err != nil && (pull == PullNever || !errors.Is(err, errNoImage)) {
			return nil, err
		}
	}
	if image == nil {
		notice("pulling " + name)
		if image, err = c.pull(ctx, name); err != nil {
			return nil, err
		}
	}
	unpacked, err := image.IsUnpacked(ctx, "")
	if err == nil && !unpacked {
		notice("unpacking " + name)
		err = image.Unpack(ctx, "")
	}
	if err != nil {
		return nil, c.Plain(ctx, fmt.Sprintf("unpack image %q", name), err)
	}
	return &Image{Name: image.Name(), image: image}, nil
}

// local is the image among those that this machine has, under its full name or as it was written.
func (c *Client) local(ctx context.Context, ref, name string) (containerd.Image, error) {
	for _, n := range []string{name, ref} {
		image, err := c.ctr.GetImage(ctx, n)
		if err == nil {
			return image, nil
		}
		if !errdefs.IsNotFound(err) {
			return nil, c.Plain(ctx, fmt.Sprintf("look for image %q", n), err)
		}
	}
	// Kubernetes, Docker's own containerd, nerdctl and ctr, in this order.
	for _, from := range []string{base.NamespaceKubernetes, "moby", "default"} {
		for _, n := range []string{name, ref} {
			image, err := c.ctr.ImageService().Get(namespaces.WithNamespace(ctx, from), n)
			if errdefs.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, c.Plain(ctx, fmt.Sprintf("look for image %q in %q", n, from), err)
			}
			return c.adopt(ctx, from, image)
		}
	}
	return nil, fmt.Errorf("image %q: %w", name, errNoImage)
}

// adopt makes an image of another namespace known in ctx's. containerd keeps content once: what it has is
// not copied.
func (c *Client) adopt(ctx context.Context, from string, image images.Image) (containerd.Image, error) {
	doing := fmt.Sprintf("take image %q over from %q", image.Name, from)
	// Until the image names its content, nothing else keeps it.
	ctx, done, err := c.ctr.WithLease(ctx)
	if err != nil {
		return nil, c.Plain(ctx, doing, err)
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }() // it ends by itself a day later
	there, here := namespaces.WithNamespace(ctx, from), c.ctr.ContentStore()
	fetch := images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		return nil, share(ctx, there, here, d)
	})
	children := images.LimitManifests(images.FilterPlatforms(images.ChildrenHandler(here), platforms.Default()),
		platforms.Default(), 1)
	// Labels keep the parts as long as the image: they are what garbage collection follows.
	if err := images.Dispatch(ctx, images.Handlers(fetch, images.SetChildrenLabels(here, children)), nil,
		image.Target); err != nil {
		return nil, c.Plain(ctx, doing, err)
	}
	made, err := c.ctr.ImageService().Create(ctx, images.Image{Name: image.Name, Target: image.Target})
	if errdefs.IsAlreadyExists(err) {
		made, err = c.ctr.ImageService().Get(ctx, image.Name)
	}
	if err != nil {
		return nil, c.Plain(ctx, doing, err)
	}
	return containerd.NewImage(c.ctr, made), nil
}

// share makes one blob of another namespace known in ctx's.
func share(ctx, there context.Context, store content.Store, d ocispec.Descriptor) error {
	r, err := store.ReaderAt(there, d)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := content.OpenWriter(ctx, store, content.WithRef("kerf-"+d.Digest.String()), content.WithDescriptor(d))
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer w.Close()
	err = content.Copy(ctx, w, content.NewReader(r), d.Size, d.Digest)
	if errdefs.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (c *Client) pull(ctx context.Context, name string) (containerd.Image, error) {
	// The fetcher prints failures on stderr, in addition to the error that it returns.
	if err := log.SetLevel("panic"); err != nil {
		return nil, fmt.Errorf("pull image %q: %w", name, err)
	}
	options := dockerconfig.HostOptions{HostDir: dockerconfig.HostDirFromRoot(hostsDir)}
	if host, _, _ := strings.Cut(name, "/"); docker.IsLocalhost(host) {
		options.DefaultScheme = "http" // as other tools take a registry on this machine
	}
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: dockerconfig.ConfigureHosts(ctx, options)})
	image, err := c.ctr.Pull(ctx, name, containerd.WithPullUnpack, containerd.WithResolver(resolver))
	if err != nil {
		return nil, c.Plain(ctx, fmt.Sprintf("pull image %q", name), err)
	}
	return image, nil
}

// FullName is the full name of an image: "busybox" is "docker.io/library/busybox:latest", as for Docker. The
// error is a *sharing.FieldError.
func FullName(ref string) (string, error) {
	bad := func(problem string) (string, error) {
		return "", sharing.Invalid("--image", ref, "write a name such as nvcr.io/nvidia/pytorch:24.05-py3", "%s",
			problem)
	}
	if ref == "" {
		return bad("is empty")
	}
	if strings.ContainsFunc(ref, func(r rune) bool {
		return r <= ' ' || r > '~' ||
			strings.ContainsRune(`"'\?*<>|;&$`, r)
	}) {
		return bad("is not the name of an image")
	}
	rest, digest, digested := strings.Cut(ref, "@")
	if digested && (!strings.Contains(digest, ":") || rest == "") {
		return bad("has no digest after @")
	}
	host, path, two := strings.Cut(rest, "/")
	if !two || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, path = "docker.io", rest
	}
	if host == "docker.io" && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	repository, tag, tagged := strings.Cut(path, ":")
	switch {
	case repository == "" || repository != strings.ToLower(repository) || strings.Contains("/"+repository, "//") ||
		strings.HasSuffix(repository, "/"):
		return bad("is not the name of an image: repositories are in lower case")
	case tagged && tag == "" || strings.ContainsAny(tag, ":/"):
		return bad("has no tag after the colon")
	case !tagged && !digested:
		path += ":latest"
	}
	name := host + "/" + path
	if digested {
		name += "@" + digest
	}
	return name, nil
}

// closingReader calls a function once when its source has ended, whichever comes later.
type closingReader struct {
	from io.Reader

	mu    sync.Mutex
	ended bool
	tell  func()
}

// orNil is the reader, or nil without a source: a typed nil would count as a source.
func (r *closingReader) orNil() io.Reader {
	if r.from == nil {
		return nil
	}
	return r
}

// Read reads the source, noting its end.
func (r *closingReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil {
		r.mu.Lock()
		r.ended = true
		tell := r.tell
		r.tell = nil
		r.mu.Unlock()
		if tell != nil {
			tell()
		}
	}
	return n, err
}

// onEnd sets the function, and calls it at once when the end is past.
func (r *closingReader) onEnd(tell func()) {
	r.mu.Lock()
	ended := r.ended
	if !ended {
		r.tell = tell
	}
	r.mu.Unlock()
	if ended {
		tell()
	}
}
