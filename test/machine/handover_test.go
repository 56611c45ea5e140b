// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The words that gpuload's makers and importers say to each other (sim/cmd/gpuload/peer.c).
const (
	wordMake, wordPiece, wordFree, wordFreed = 1, 2, 3, 4

	packetSize = 80
	outOfRoom  = 2 // CUDA_ERROR_OUT_OF_MEMORY
)

// packet is one of their packets, with the files that came along.
type packet struct {
	data  [packetSize]byte
	files []int
}

func (p *packet) word() uint32 { return binary.NativeEndian.Uint32(p.data[:]) }

func answer(word, result uint32) *packet {
	p := &packet{}
	binary.NativeEndian.PutUint32(p.data[:], word)
	binary.NativeEndian.PutUint32(p.data[4:], result)
	return p
}

var errHungUp = errors.New("the other end is closed")

func hear(fd int) (*packet, error) {
	p, with := &packet{}, make([]byte, 64)
	n, nwith, _, _, err := syscall.Recvmsg(fd, p.data[:], with, syscall.MSG_CMSG_CLOEXEC)
	if err == nil && n != packetSize {
		err = errHungUp
	}
	if err != nil || nwith == 0 {
		return p, err
	}
	all, err := syscall.ParseSocketControlMessage(with[:nwith])
	for i := range all {
		files, wrong := syscall.ParseUnixRights(&all[i])
		p.files, err = append(p.files, files...), errors.Join(err, wrong)
	}
	return p, err
}

func (p *packet) say(fd int) error {
	var with []byte
	if len(p.files) > 0 {
		with = syscall.UnixRights(p.files...)
	}
	return syscall.Sendmsg(fd, p.data[:], with, nil, syscall.MSG_NOSIGNAL)
}

func (p *packet) close() {
	for _, fd := range p.files {
		_ = syscall.Close(fd) // a copy of what was sent on
	}
}

// ends are a socket's two, of which the other is a program's input.
func ends(t *testing.T) (own int, other *os.File) {
	t.Helper()
	two, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(two[0]) })
	return two[0], os.NewFile(uintptr(two[1]), "socket") // #nosec G115 -- a descriptor
}

const handedCap = 2 * gib

// maker is a grant of which a program makes memory for others.
type maker struct {
	*run
	fd int
}

func (m *machine) maker(kind string, n int) *maker {
	m.t.Helper()
	fd, input := ends(m.t)
	r := m.run(flags(fmt.Sprintf("--memory 2GiB --name maker-%d --gpu-uuid %s", n, m.uuid(0))),
		[]string{program("gpuload"), "--offer", kind}, withInput(input))
	_ = input.Close() // it is the program's now
	r.granted()
	return &maker{r, fd}
}

// ways are what a maker does with its memory once another has imported it.
const (
	keepsIt = "keeps it"
	freesIt = "frees it"
	endsIt  = "ends, and another grant takes its place"
)

// broker stands between an importer and its makers.
type broker struct {
	m          *machine
	taker      int
	kind, then string
	from       *maker
	makers     int
}

// step hands on what the importer has asked for meanwhile, if anything.
func (b *broker) step() {
	b.m.t.Helper()
	asked, err := hear(b.taker)
	if err != nil {
		return // nothing yet, or it has ended
	}
	if b.from == nil {
		b.makers++
		b.from = b.m.maker(b.kind, b.makers)
	}
	said := answer(asked.word()+1, outOfRoom) // by a maker that was ended, or had no context
	switch {
	case asked.word() == wordMake || b.then == freesIt:
		if err := asked.say(b.from.fd); err == nil {
			if got, err := hear(b.from.fd); err == nil {
				said = got
			}
		}
	case b.then == endsIt:
		b.end()
		fallthrough
	default:
		said = answer(wordFreed, 0)
	}
	_ = said.say(b.taker) // it may have been ended
	said.close()
}

// last is what the maker that there is has said.
func (b *broker) last() string {
	if b.from == nil {
		return "none"
	}
	return b.from.stdout() + b.from.stderr()
}

// end ends the maker that there is.
func (b *broker) end() {
	if b.from != nil {
		b.from.end()
		b.from.wait()
		b.from = nil
	}
}

// warnsOf tells whether a warning names the grant.
func (m *machine) warnsOf(grant string) bool {
	m.t.Helper()
	return slices.ContainsFunc(m.state().Warnings, func(w string) bool { return strings.Contains(w, grant) })
}

func inWords(bytes *uint64) string {
	if bytes == nil {
		return "what is not known"
	}
	return fmt.Sprint(*bytes)
}

// TestMemoryHandedToAnotherGrant has a grant make memory up to its cap, hand it to another grant, and let it go, again
// and again. Either that is held, or it is found: the importer is killed, or a warning names it. What a maker keeps is
// its own.
func TestMemoryHandedToAnotherGrant(t *testing.T) {
	t.Parallel()
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			m := b.make(t, usualHardware, b.driver, "")
			for _, tc := range []struct{ kind, api, then string }{
				{"vmm", "import", keepsIt}, {"vmm", "import", freesIt}, {"vmm", "import", endsIt},
				{"ipc", "ipc", freesIt}, {"pool", "pool-import", freesIt},
			} {
				t.Run(tc.kind+", its maker "+tc.then,
					func(t *testing.T) { m.in(t).handsOver(b, tc.kind, tc.api, tc.then) })
			}
		})
	}
}

func (m *machine) handsOver(b backend, kind, api, then string) {
	m.t.Helper()
	m.set("gpu=all", "peak=now")
	wants := "6GiB"
	if then == keepsIt {
		wants = "1536MiB"
	}
	before := m.watched()
	fd, input := ends(m.t)
	name := "taker"
	r := m.run(flags("--memory 2GiB --name "+name+" --gpu-uuid "+m.uuid(0)),
		load("--api "+api+" --from-input --step 1536MiB --hold 1h --alloc "+wants), withInput(input))
	_ = input.Close()
	grant := r.granted()
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO,
		&syscall.Timeval{Usec: 20_000}); err != nil {
		m.t.Fatal(err)
	}
	between := &broker{m: m, taker: fd, kind: kind, then: then}
	var seen seen
	over := uint64(0)
	eventually(m.t, "an end of what it takes", func() error {
		between.step()
		seen.warned = seen.warned || m.warnsOf(grant.ID)
		killed, _ := m.watched().since(before)
		peak := m.memory().peak
		if peak > 2*handedCap {
			over = peak - 2*handedCap
		}
		switch {
		case killed != "" || seen.warned:
			seen.killed = killed
			return nil
		case !strings.Contains(r.stdout(), "\n"):
			return errors.New("it says nothing yet, and no one has found it")
		case over > 0:
			return fmt.Errorf("it is %d bytes over all caps, and no backend has found it", over)
		}
		return nil
	})
	if lines := r.stdout(); strings.Contains(lines, "\n") {
		if l := decode[loaded](m.t, firstLine(lines)); l.Allocated < 3*gib/2 {
			m.t.Errorf("it got nothing of another's: %v; its maker: %s", l, between.last())
		}
	}
	if then == keepsIt {
		eventually(m.t, "the use of both", func() error {
			own, maker := m.grant(name), m.grant("maker-1")
			if own.Used == nil || maker.Used == nil || *own.Used == 0 || *own.Used > gib/2 || *maker.Used < 3*gib/2 {
				return fmt.Errorf("what a maker keeps is its own alone: the importer uses %s, the maker %s",
					inWords(own.Used), inWords(maker.Used))
			}
			return nil
		})
		time.Sleep(500 * time.Millisecond) // some looks of the watch: it must find nothing
		seen.warned = seen.warned || m.warnsOf(grant.ID)
		if killed, _ := m.watched().since(before); killed != "" || seen.warned {
			m.t.Errorf("killed %q, warned %t of who imported what its maker keeps: %q", killed, seen.warned,
				m.state().Warnings)
		}
	}
	if b.name == "driver" && then == freesIt && (over > 0 || seen.warned || seen.killed != "") {
		m.t.Errorf("%d bytes over, killed %q, warned %t: the driver's limit of the maker counts it until it is gone",
			over, seen.killed, seen.warned)
	}
	m.t.Logf("%d bytes over all caps, killed %q, warned %t: %q", over, seen.killed, seen.warned, m.state().Warnings)
	r.end()
	r.wait()
	between.end()
	m.endsWith(grant.Cgroup)
	m.noGrants()
	eventually(m.t, "memory back", func() error {
		if held := m.memory().used; b.name != "mps" && held != 0 {
			return fmt.Errorf("%d bytes are held", held)
		}
		return nil
	})
}
