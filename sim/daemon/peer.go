// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/process"
	"github.com/kerf-gpu/kerf/sharing"
	"github.com/kerf-gpu/kerf/sim/control"
	"github.com/kerf-gpu/kerf/sim/wire"
)

const (
	// soPeerPIDFD is SO_PEERPIDFD (Linux 6.5).
	soPeerPIDFD = 77
	retryAfter  = 50 * time.Millisecond
)

// peer is the process that made a connection. The pid cannot be another's while pidfd is not readable. Another process
// may have the connection open after its end.
type peer struct {
	conn  *net.UnixConn
	pidfd *os.File
	pid   int
	start uint64 // clock ticks since boot
	names names  // its pids in the pid namespaces that it is in
	uid   uint32
	root  bool
	dir   string // the cgroup that it was seen in last; guarded by Daemon.mu
}

// mayTouch refuses who is neither root nor the user of a process.
func (p *peer) mayTouch(pid int) error {
	var s unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d", pid), &s); err != nil {
		return wire.NotFound
	}
	if !p.root && s.Uid != p.uid {
		return wire.NoPermission
	}
	return nil
}

// capSysAdmin is the number of CAP_SYS_ADMIN.
const capSysAdmin = 21

// administrator reports whether the process has CAP_SYS_ADMIN over the machine now: what the driver's kernel module
// asks of who changes a GPU. Root in a container has it only if it was given to the container.
func (p *peer) administrator() bool {
	proc := fmt.Sprintf("/proc/%d/", p.pid)
	theirs, err := os.Readlink(proc + "ns/user")
	if err != nil {
		return false // it is gone
	}
	if ours, err := os.Readlink("/proc/self/ns/user"); err != nil || theirs != ours {
		return false
	}
	text, err := os.ReadFile(proc + "status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if mask, ok := strings.CutPrefix(line, "CapEff:"); ok {
			caps, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && caps&(1<<capSysAdmin) != 0
		}
	}
	return false
}

// identify learns from the kernel who has connected. It fails for a process outside this pid namespace and
// for one that is gone.
func identify(conn *net.UnixConn) (*peer, error) {
	cred, err := control.PeerCred(conn)
	if err != nil {
		return nil, err
	}
	if cred.Pid <= 0 {
		return nil, fmt.Errorf("peer has no process id here; the daemon must be in the host's pid namespace: %w",
			sharing.ErrDenied)
	}
	fd, err := openPIDFD(conn, int(cred.Pid))
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", cred.Pid, err)
	}
	p := &peer{conn: conn, pidfd: fd, pid: int(cred.Pid), uid: cred.Uid, root: cred.Uid == 0}
	p.start, err = process.StartOf(p.pid)
	if err == nil {
		p.names, err = namesOf(p.pid)
	}
	if err == nil && p.dead() {
		err = fmt.Errorf("it has ended: %w", sharing.ErrNotFound) // so what was read may be of another process
	}
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", p.pid, errors.Join(err, p.names.close(), fd.Close()))
	}
	return p, nil
}

// openPIDFD asks the socket for its peer; an older kernel can only be asked for the process that has the pid
// now.
func openPIDFD(conn *net.UnixConn, pid int) (*os.File, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("pidfd: %w", err)
	}
	var fd int
	var sockErr error
	if err := raw.Control(func(s uintptr) {
		fd, sockErr = unix.GetsockoptInt(int(s), unix.SOL_SOCKET, soPeerPIDFD) // #nosec G115 -- a descriptor
	}); err != nil {
		return nil, fmt.Errorf("pidfd: %w", err)
	}
	if errors.Is(sockErr, unix.ENOPROTOOPT) {
		fd, sockErr = unix.PidfdOpen(pid, 0)
	}
	if sockErr != nil {
		return nil, fmt.Errorf("pidfd: %w", sockErr)
	}
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil { // makes it one that the runtime's poller takes
		return nil, errors.Join(fmt.Errorf("pidfd: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil // #nosec G115 -- a descriptor
}

// dead reports whether the process has ended.
func (p *peer) dead() bool {
	proc, err := p.pidfd.SyscallConn()
	if err != nil {
		return true
	}
	ended := false
	err = proc.Control(func(fd uintptr) { ended = readable(fd, unix.POLLIN) })
	return ended || err != nil
}

// cgroup is the directory of the cgroup that the process is in, or was in when it lived last. Daemon.mu is held.
func (p *peer) cgroup(groups hierarchy) string {
	if dir, err := groups.dirOf(p.pid); err == nil && !p.dead() {
		p.dir = dir
	}
	return p.dir
}

// gone reports whether the process has died or closed the connection, or the peer was closed.
func (p *peer) gone() bool {
	conn, err := p.conn.SyscallConn()
	if err != nil {
		return true
	}
	over := p.dead()
	err = conn.Control(func(fd uintptr) { over = over || readable(fd, unix.POLLRDHUP) })
	return over || err != nil
}

// readable reports whether one of events, or an end, is there now.
func readable(fd uintptr, events int16) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: events}} // #nosec G115 -- a descriptor
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// close ends all that waits on the peer.
func (p *peer) close() {
	_ = p.conn.Close()  // nothing is left to be sent
	_ = p.pidfd.Close() // nothing was written
	_ = p.names.close() // as above
}

// pause waits a little before something is tried again.
func pause(ctx context.Context) error {
	t := time.NewTimer(retryAfter)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
