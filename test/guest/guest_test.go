// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	guestDir = flag.String("guest", "", "folder of the guest's kernel and image, which hack/nightly-guest.sh makes")
	inside   = flag.Bool("inside", false, "this is the guest")
)

// deadline is for the whole life of the guest, which needs about a minute.
const deadline = 9 * time.Minute

// variant is a driver with the backend that is to hold the jobs.
type variant struct {
	name, driver, backends, level string
}

// variants are what the guest is booted with, one after the other. Backend mps holds no container of a bundle; libkerf
// does then.
func variants() []variant {
	return []variant{
		{"driver", "r615", "driver, reactive", "driver"},
		{"libkerf", "r580", "driver, libkerf, reactive", "userspace"},
		{"mps", "r580", "driver, mps, libkerf, reactive", "userspace"},
	}
}

// parameter tells the guest its variant, on the kernel's command line.
const parameter = "kerf.variant="

// TestGuest boots the guest with each variant, and wants a result of each step from it.
func TestGuest(t *testing.T) {
	if *guestDir == "" {
		t.Skip("it needs the image of a virtual machine: run make nightly-guest")
	}
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) { v.run(t) })
	}
}

func (v variant) run(t *testing.T) {
	results := filepath.Join(t.TempDir(), "results")
	console, err := boot(t.Context(), results, parameter+v.name)
	if err != nil {
		t.Errorf("boot the guest: %v", err)
	}
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	told := strings.ReplaceAll(string(text), "\r", "")
	t.Logf("the guest says:\n%s", told)
	for _, wrong := range judge(told) {
		t.Error(wrong)
	}
	if t.Failed() {
		t.Logf("console:\n%s", console)
	}
}

// boot runs the guest until it turns itself off, and returns what it wrote to its console.
func boot(ctx context.Context, results, further string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	file := func(name string) string { return filepath.Join(*guestDir, name) }
	data := file("emulator/usr/share")
	// The processor is emulated. It takes seconds, and a KVM within a virtual machine can hang.
	cmd := exec.CommandContext(ctx, "nice", "-n", "10", file("qemu-system-x86_64"), "-accel", "tcg,thread=multi",
		"-cpu", "max",
		"-m", "2048", "-smp", "2", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-L", data+"/qemu", "-L", data+"/seabios", "-kernel", file("vmlinuz"), "-initrd", file("initrd"),
		"-append",
		"console=ttyS0 loglevel=4 panic=-1 systemd.unit=guest.target systemd.log_color=0 systemd.show_status=error "+
			further,
		"-serial", "stdio", "-serial", "file:"+results)
	runtime.LockOSThread() // the kernel ends the guest with the thread that started it
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	console, err := cmd.CombinedOutput()
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("it has not turned itself off within %s", deadline)
	case err == nil && !strings.Contains(string(console), "reboot: Power down"):
		err = fmt.Errorf("it ended without turning itself off")
	}
	return string(console), err
}

var resultLine = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): TestInside/(\S+) `)

// judge returns what is missing from the guest's results, or wrong in them.
func judge(told string) (wrong []string) {
	result := map[string]string{}
	for _, found := range resultLine.FindAllStringSubmatch(told, -1) {
		result[found[2]] = found[1]
	}
	for _, s := range steps() {
		if got := result[s.name]; got != "PASS" {
			wrong = append(wrong, fmt.Sprintf("step %q: %q, want PASS", s.name, got))
		}
	}
	if !strings.Contains("\n"+told, "\nPASS\n") {
		wrong = append(wrong, "the guest's test did not end well")
	}
	return wrong
}

// A result that is missing, failed or skipped is found, and so is a test that did not end.
func TestJudge(t *testing.T) {
	var all strings.Builder
	for _, s := range steps() {
		fmt.Fprintf(&all, "    --- PASS: TestInside/%s (0.10s)\n", s.name)
	}
	good := all.String() + "PASS\n"
	first := steps()[0].name
	for name, tt := range map[string]struct {
		told string
		want int
	}{
		"good":    {good, 0},
		"failed":  {strings.Replace(good, "PASS: TestInside/"+first, "FAIL: TestInside/"+first, 1), 1},
		"skipped": {strings.Replace(good, "PASS: TestInside/"+first, "SKIP: TestInside/"+first, 1), 1},
		"cut off": {all.String(), 1},
		"nothing": {"", len(steps()) + 1},
	} {
		if got := judge(tt.told); len(got) != tt.want {
			t.Errorf("%s: %q, want %d", name, got, tt.want)
		}
	}
}
