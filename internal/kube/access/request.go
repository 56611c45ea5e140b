// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package access

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/kerf-gpu/kerf/sharing"
)

const (
	// requestTimeout bounds one request, and answerBytes what is read of its answer.
	requestTimeout = 30 * time.Second
	answerBytes    = 256 << 20
	// pageSize is how many objects of a list are asked for at once.
	pageSize = 500
	// refusalBytes is how much of an answer that refuses is read.
	refusalBytes = 64 << 10
)

// The content types of what is sent.
const (
	// JSON is an object.
	JSON = "application/json"
	// MergePatch changes the fields that it has, and takes off those that it has as null.
	MergePatch = "application/merge-patch+json"
)

// Get reads one object, or other JSON of the path. Errors: sharing.ErrDenied (no right to it), sharing.ErrNotFound,
// sharing.ErrInvalid (the server rejects the request), sharing.ErrConflict (another client was first, or a disruption
// budget blocks it), sharing.ErrUnavailable.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	return c.Do(ctx, http.MethodGet, path, query, nil, into)
}

// Body is what a request sends.
type Body struct {
	// Type is the content type, and Value is written as JSON.
	Type  string
	Value any
}

// Do sends a request, and reads the answer into into where that is not nil. Its errors are those of Get.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body *Body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.send(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(answer, answerBytes)).Decode(into); err != nil {
		return fmt.Errorf("read the answer: %w (%w)", err, sharing.ErrUnavailable)
	}
	return nil
}

// Stream reads what comes until the server or ctx ends it; the caller closes it. Its errors are those of Get.
func (c *Client) Stream(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	return c.send(ctx, http.MethodGet, path, query, nil)
}

// Text reads an answer that is no JSON, and at most so many bytes of it. Its errors are those of Get.
func (c *Client) Text(ctx context.Context, path string, query url.Values, most int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	answer, err := c.send(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer, most))
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w (%w)", err, sharing.ErrUnavailable)
	}
	return text, nil
}

// List gives each item of a list, page by page, with what else the query asks. Its errors are those of Get, and those
// of item. The pager of client-go works on typed objects; here each item is decoded by its user, who needs a part of
// it.
func (c *Client) List(ctx context.Context, path string, query url.Values, item func(json.RawMessage) error) error {
	_, err := c.list(ctx, path, query, item)
	return err
}

// list is List. It returns the version of the list, from which a watch goes on.
func (c *Client) list(ctx context.Context, path string, query url.Values, item func(json.RawMessage) error) (string,
	error) {
	asked := url.Values{"limit": {fmt.Sprint(pageSize)}}
	maps.Copy(asked, query)
	for next := ""; ; {
		var page struct {
			Metadata struct{ Continue, ResourceVersion string }
			Items    []json.RawMessage
		}
		asked.Set("continue", next)
		if err := c.Get(ctx, path, asked, &page); err != nil {
			return "", fmt.Errorf("list %s: %w", last(path), err)
		}
		for _, raw := range page.Items {
			if err := item(raw); err != nil {
				return "", fmt.Errorf("list %s: %w (%w)", last(path), err, sharing.ErrUnavailable)
			}
		}
		if next = page.Metadata.Continue; next == "" {
			return page.Metadata.ResourceVersion, nil
		}
	}
}

func (c *Client) send(ctx context.Context, method, path string, query url.Values, body *Body) (io.ReadCloser, error) {
	at := c.base.JoinPath(path)
	at.RawQuery = query.Encode()
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body.Value)
		if err != nil {
			return nil, fmt.Errorf("write the request: %w (%w)", err, sharing.ErrInvalid)
		}
		in = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, at.String(), in)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, sharing.ErrInvalid)
	}
	request.Header.Set("Accept", "application/json, */*")
	if body != nil {
		request.Header.Set("Content-Type", body.Type)
	}
	answer, err := c.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("%w (%w)", err, sharing.ErrUnavailable)
	}
	if answer.StatusCode >= 200 && answer.StatusCode < 300 {
		return answer.Body, nil
	}
	defer func() { _ = answer.Body.Close() }()
	return nil, refusal(method, answer)
}

// refusal is an answer that gives nothing, in Kerf's vocabulary and with the server's own words.
func refusal(method string, answer *http.Response) error {
	var said struct{ Message string }
	text := "the API server says " + answer.Status
	if json.NewDecoder(io.LimitReader(answer.Body, refusalBytes)).Decode(&said) == nil && said.Message != "" {
		text += ": " + said.Message
	}
	switch answer.StatusCode {
	case http.StatusUnauthorized:
		return fmt.Errorf("%s; log in again, or name another user of the kubeconfig with --user: %w", text,
			sharing.ErrDenied)
	case http.StatusForbidden:
		return fmt.Errorf("%s; ask an administrator for the right: %w", text, sharing.ErrDenied)
	case http.StatusNotFound:
		return fmt.Errorf("%s: %w", text, sharing.ErrNotFound)
	case http.StatusConflict:
		return fmt.Errorf("%s: %w", text, sharing.ErrConflict)
	case http.StatusTooManyRequests:
		if method == http.MethodPost { // an eviction that a disruption budget does not let through
			return fmt.Errorf("%s: %w", text, sharing.ErrConflict)
		}
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusUnsupportedMediaType:
		return fmt.Errorf("%s: %w", text, sharing.ErrInvalid)
	}
	return fmt.Errorf("%s: %w", text, sharing.ErrUnavailable)
}

// last is what a path is the list of.
func last(path string) string {
	for i := len(path) - 1; i >= 0; i-- {
		if path[i] == '/' {
			return path[i+1:]
		}
	}
	return path
}
