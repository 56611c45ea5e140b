// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// frame builds a frame by hand, as a peer of any version would.
func frame(version byte, body string) []byte {
	out := append([]byte("KRFH"), version)
	out = binary.BigEndian.AppendUint32(out, uint32(len(body)))
	return append(out, body...)
}

func TestRoundTrip(t *testing.T) {
	var b bytes.Buffer
	q := Request{Container: "c1", PID: 4711, Amount: "gpu-memory-gib:10", Grant: "k-1", Version: "v1"}
	p := Response{Message: "no grant for \"c1\"\n", Retry: true, Version: "v2"}
	if err := errors.Join(WriteRequest(&b, q), WriteResponse(&b, p)); err != nil {
		t.Fatal(err)
	}
	// Byte by byte, and with the response behind the request: nothing past a frame is read.
	r := iotest.OneByteReader(&b)
	gotQ, errQ := ReadRequest(r)
	gotP, errP := ReadResponse(r)
	if err := errors.Join(errQ, errP); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(q, gotQ) + cmp.Diff(p, gotP); diff != "" {
		t.Error(diff)
	}
}

func TestLayoutOfTheFrameStays(t *testing.T) {
	var b bytes.Buffer
	if err := WriteRequest(&b, Request{Container: "c", PID: 2}); err != nil {
		t.Fatal(err)
	}
	if want := "KRFH\x01\x00\x00\x00\x19{\"container\":\"c\",\"pid\":2}"; b.String() != want {
		t.Errorf("frame %q, want %q", b.String(), want)
	}
}

func TestPeerOfANeighbouringVersion(t *testing.T) {
	newer, err := ReadRequest(bytes.NewReader(frame(Version,
		`{"container":"c","pid":7,"ask":"gpu:1","version":"v9","cgroup":{"inode":5},"deadline_ms":[1]}`)))
	if want := (Request{Container: "c", PID: 7, Amount: "gpu:1", Version: "v9"}); err != nil || newer != want {
		t.Errorf("newer hook: %+v (%v), want %+v", newer, err, want)
	}
	older, err := ReadRequest(bytes.NewReader(frame(Version, `{"container":"c","pid":7}`)))
	if want := (Request{Container: "c", PID: 7}); err != nil || older != want {
		t.Errorf("older hook: %+v (%v), want %+v", older, err, want)
	}
	answer, err := ReadResponse(bytes.NewReader(frame(Version, `{"ok":true,"level":"driver"}`)))
	if err != nil || !answer.OK {
		t.Errorf("newer agent: %+v (%v), want ok", answer, err)
	}
	// What is not said is no.
	silent, err := ReadResponse(bytes.NewReader(frame(Version, `{}`)))
	if err != nil || silent.OK || silent.Retry {
		t.Errorf("agent that says nothing: %+v (%v), want a refusal", silent, err)
	}
}

func TestPeerOfAnotherFrameVersion(t *testing.T) {
	for _, v := range []byte{0, Version + 1, 255} {
		_, err := ReadRequest(bytes.NewReader(frame(v, `{"container":"c","pid":7}`)))
		var other *VersionError
		if !errors.As(err, &other) || other.Peer != v {
			t.Errorf("version %d: error %v, want a *VersionError that names it", v, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "version 1") || !strings.Contains(err.Error(), "install")) {
			t.Errorf("version %d: error %q names neither this side's version nor a remedy", v, err)
		}
	}
}

func TestMalformed(t *testing.T) {
	long := binary.BigEndian.AppendUint32([]byte("KRFH\x01"), MaxBody+1)
	tests := map[string]struct {
		in   []byte
		want error
	}{
		"nothing":          {nil, io.EOF},
		"half a header":    {[]byte("KRFH\x01\x00"), io.ErrUnexpectedEOF},
		"half a body":      {frame(Version, `{"container":"c"}`)[:15], io.ErrUnexpectedEOF},
		"other protocol":   {[]byte("GET / HTTP/1.1\r\n\r\n"), ErrMalformed},
		"too long":         {long, ErrMalformed},
		"empty body":       {frame(Version, ""), ErrMalformed},
		"null":             {frame(Version, "null"), ErrMalformed},
		"array":            {frame(Version, "[]"), ErrMalformed},
		"trailing garbage": {frame(Version, `{"pid":2}{}`), ErrMalformed},
		"wrong type":       {frame(Version, `{"pid":"2"}`), ErrMalformed},
		"half json":        {frame(Version, `{"pid":2`), ErrMalformed},
		"pid too large":    {frame(Version, `{"pid":99999999999999999999}`), ErrMalformed},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadRequest(bytes.NewReader(tc.in)); !errors.Is(err, tc.want) {
				t.Errorf("request: error %v, want %v", err, tc.want)
			}
		})
	}
	if _, err := ReadResponse(bytes.NewReader(frame(Version, `{"ok":true,"retry":true}`))); !errors.Is(err,
		ErrMalformed) {
		t.Errorf("ok and retry: error %v, want %v", err, ErrMalformed)
	}
}

func TestBounds(t *testing.T) {
	if err := WriteRequest(io.Discard, Request{Container: strings.Repeat("x", MaxBody)}); !errors.Is(err,
		ErrMalformed) {
		t.Errorf("long request: error %v, want %v", err, ErrMalformed)
	}
	// The longest reason, of bytes that JSON writes longest, still arrives, truncated.
	var b bytes.Buffer
	if err := WriteResponse(&b, Response{Message: strings.Repeat("\x01", MaxBody)}); err != nil {
		t.Fatal(err)
	}
	p, err := ReadResponse(&b)
	if err != nil || len(p.Message) < maxMessage || len(p.Message) > maxMessage+3 {
		t.Errorf("message of %d bytes (%v), want about %d", len(p.Message), err, maxMessage)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(frame(Version, `{"container":"c","pid":2,"ask":"gpu:1"}`))
	f.Add(frame(Version, `{"ok":false,"retry":true,"message":"m"}`))
	f.Add(frame(2, `{}`))
	f.Add([]byte("KRFH\x01\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if q, err := ReadRequest(bytes.NewReader(in)); err == nil {
			var b bytes.Buffer
			if err := WriteRequest(&b, q); errors.Is(err, ErrMalformed) {
				return // a body of odd bytes may grow when it is written again
			} else if err != nil {
				t.Fatal(err)
			}
			if again, err := ReadRequest(&b); err != nil || again != q {
				t.Errorf("%+v came back as %+v (%v)", q, again, err)
			}
		}
		if p, err := ReadResponse(bytes.NewReader(in)); err == nil && p.OK && p.Retry {
			t.Errorf("%+v says ok and retry", p)
		}
	})
}
