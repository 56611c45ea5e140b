// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Way is how a program is started: as it is, with libkerf, or in a grant.
type Way struct {
	Name string
	argv []string // goes in front of the program
	env  []string
}

// Native starts programs without Kerf.
func (b *Bench) Native() Way { return Way{Name: "native", env: b.Env} }

// With adds variables to the environment.
func (w Way) With(name string, env ...string) Way {
	return Way{Name: name, argv: w.argv, env: append(append([]string{}, w.env...), env...)}
}

// Proc is a program that a step started.
type Proc struct {
	PID   int
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	done  chan struct{} // closed when it has ended
	code  int
	errs  tail
}

// tail keeps the end of what a program writes to stderr.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	const most = 4096
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > most {
		t.text = bytes.Clone(t.text[len(t.text)-most:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// Start starts a program. Its lines on stdout have to be read with Line, or are dropped after some thousands.
func (b *Bench) Start(w Way, program string, args ...string) (*Proc, error) {
	argv := append(append(append([]string{}, w.argv...), program), args...)
	p := &Proc{cmd: exec.Command(argv[0], argv[1:]...), lines: make(chan string, 1<<14), done: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = w.env, &p.errs
	p.cmd.WaitDelay = time.Second
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	p.PID = p.cmd.Process.Pid
	b.mu.Lock()
	b.procs = append(b.procs, p)
	b.mu.Unlock()
	go p.follow(out)
	return p, nil
}

// follow hands lines on and reaps the program.
func (p *Proc) follow(out io.Reader) {
	defer close(p.done)
	s := bufio.NewScanner(out)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		select {
		case p.lines <- s.Text():
		default:
		}
	}
	close(p.lines)
	_ = p.cmd.Wait()
	p.code = p.cmd.ProcessState.ExitCode()
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		p.code = 128 + int(s.Signal())
	}
}

// ErrEnded says that a program ended without another line of JSON.
var ErrEnded = errors.New("ended")

// Line reads the next line that is a JSON object. Other lines are skipped: kernels may print.
func (p *Proc) Line(ctx context.Context, into any) error {
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				<-p.done
				return fmt.Errorf("%w with status %d: %s", ErrEnded, p.code, p.errs.String())
			}
			if strings.HasPrefix(line, "{") {
				return json.Unmarshal([]byte(line), into)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Next lets a program that waits for a line go on.
func (p *Proc) Next() { _, _ = io.WriteString(p.in, "\n") }

// Wait waits for the end and returns the exit status, 128 and the signal if one ended it.
func (p *Proc) Wait(ctx context.Context) (int, error) {
	_ = p.in.Close()
	select {
	case <-p.done:
		return p.code, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Ended is closed when the program has ended.
func (p *Proc) Ended() <-chan struct{} { return p.done }

// Says is the end of what it wrote to stderr.
func (p *Proc) Says() string { return p.errs.String() }

// Signal sends a signal, unless the program has ended.
func (p *Proc) Signal(s syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = p.cmd.Process.Signal(s)
	}
}

// End asks a program to end, and kills it if it does not within two seconds.
func (p *Proc) End() {
	_ = p.in.Close()
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(2 * time.Second):
		p.Signal(syscall.SIGKILL)
		<-p.done
	}
}

// failure is how kitload reports that a call did not work.
type failure struct {
	Failed, Call string
}

// Run starts kitload and reads its lines until it ends. The last line goes to into. The error has kitload's failure.
func (b *Bench) Run(ctx context.Context, w Way, into any, args ...string) error {
	p, err := b.Start(w, b.Program("kitload"), args...)
	if err != nil {
		return err
	}
	defer p.End()
	var last json.RawMessage
	for {
		var line json.RawMessage
		err := p.Line(ctx, &line)
		if errors.Is(err, ErrEnded) {
			return finish(w, args, last, into, err)
		}
		if err != nil {
			return fmt.Errorf("kitload %s (%s): %w", args[0], w.Name, err)
		}
		last = line
	}
}

func finish(w Way, args []string, last json.RawMessage, into any, err error) error {
	var f failure
	if json.Unmarshal(last, &f) == nil && f.Failed != "" {
		return fmt.Errorf("kitload %s (%s): %s in %s", args[0], w.Name, f.Failed, f.Call)
	}
	if last == nil {
		return fmt.Errorf("kitload %s (%s): %w", args[0], w.Name, err)
	}
	return json.Unmarshal(last, into)
}

// Output runs any program to its end and returns what it printed, stdout and stderr.
func (b *Bench) Output(ctx context.Context, w Way, program string, args ...string) (string, int, error) {
	argv := append(append(append([]string{}, w.argv...), program), args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.WaitDelay = w.env, time.Second
	out, err := cmd.CombinedOutput()
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		err = nil
	}
	code := -1
	if cmd.ProcessState != nil {
		code = cmd.ProcessState.ExitCode()
	}
	return string(out), code, err
}

// Talk writes one line to a program, ends its input, and returns all that it printed.
func (p *Proc) Talk(ctx context.Context, line string) string {
	_, _ = io.WriteString(p.in, line+"\n")
	_ = p.in.Close()
	var all []string
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return strings.TrimSpace(strings.Join(all, "\n") + " " + p.errs.String())
			}
			all = append(all, line)
		case <-ctx.Done():
			p.End()
			return context.Cause(ctx).Error()
		}
	}
}
