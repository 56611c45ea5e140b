// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

// Package run is the commands that start programs in a grant: kerf run, on a machine or as a Job, and kerf oci.
package run

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/job"
	"github.com/kerf-gpu/kerf/sharing"
)

// The exit statuses of run that are not the program's own, as shells and env, nohup and timeout have them.
const (
	exitRefused  = job.ExitRefused
	exitNotExec  = 126
	exitNotFound = 127
)

// runOptions are the flags of run as they were typed.
type runOptions struct {
	job.Options

	statusFile string
	image      imageOptions
}

// Commands are the commands of this package.
func Commands(a *command.App) []*cobra.Command {
	return []*cobra.Command{runCommand(a), ociCommand(a)}
}

func runCommand(a *command.App) *cobra.Command {
	o := &runOptions{}
	c := &cobra.Command{
		Use:   "run [flags] [--image IMAGE] -- COMMAND [ARG...]",
		Short: "Run a command or a container on a share of a GPU",
		Long: `Run a command on a share of a GPU, or on whole GPUs, with an enforced cap.

kerf becomes the command: signals, exit status and terminal are those of the
command. The grant ends when the command and all its child processes have ended.

With --image, the command runs in a container of containerd in the namespace
"kerf". The container has the files of the image, the network of the host, its
own PID namespace, and only the GPUs of the grant. It has a terminal if kerf has
one. kerf waits, forwards signals and removes the container at the end. This
needs root, and an agent with --containers.

In a cluster (kubectl kerf run, with --context, or without an agent on this
machine), --image is required and the command runs in a Job. kerf creates the
Job, shows why its pod is pending, copies its output, and deletes it at the end
and on ctrl-C. With --keep, the Job stays. With --detach, kerf returns at once.
The command replaces the entrypoint of the image, and -e sets variables. Kerf
rounds GPU memory up to GiB.

Exit status: that of the command. 125 if Kerf fails; the reason is on standard
error and in the status file. 126 if the command is not executable, 127 if it
does not exist. A signal while kerf waits for the agent ends kerf (130 for
ctrl-C).`,
		Example: `  kerf run --memory 10GiB -- python train.py
  kerf run --memory 10GiB --percent 25 --name train -- python train.py
  kerf run --gpus 2 -- ./bench
  kerf run --mig 1g.10gb -- python infer.py
  kubectl kerf run -n team --image nvcr.io/nvidia/pytorch:24.05-py3 \
    --memory 10GiB -- python train.py
  kerf run --memory 10GiB --image nvcr.io/nvidia/pytorch:24.05-py3 \
    -v /data:/data -- python /data/train.py`,
		RunE: func(c *cobra.Command, args []string) error { return run(a, c, o, args) },
	}
	// What cannot be parsed is refused like everything else that run refuses.
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badRunFlag(a, err) })
	f := c.Flags()
	f.SetInterspersed(false)
	o.Define(c, a.CompleteGPUs)
	f.StringVar(&o.Name, "name", "", "name of the grant, unique on the node")
	f.StringVar(&o.statusFile, "status-file", "", "write the grant, or the error, to this file as JSON")
	o.image.define(c)
	return c
}

// badRunFlag is a command line that does not parse. It also writes the error to the status file.
func badRunFlag(a *command.App, err error) error {
	err = errors.Join(err, errors.New("see kerf run --help"))
	report := statusFile{path: statusFileIn(a.Args)}
	return command.Exit(exitRefused, errors.Join(err, report.refused(err)))
}

// statusFileIn returns the value of --status-file in a command line that does not parse. Parsing stopped at the
// error, so the flag may come later.
func statusFileIn(args []string) string {
	for i, arg := range args {
		if arg == "--" {
			break
		}
		if v, ok := strings.CutPrefix(arg, "--status-file="); ok {
			return v
		}
		if arg == "--status-file" && i+1 < len(args) {
			return args[i+1]
		}
	}
	return ""
}

// check reads the flags. The error has every problem.
func (o *runOptions) check(c *cobra.Command, args []string) (sharing.Request, error) {
	r, err := o.Check(c, args)
	return r, errors.Join(err, o.image.check(c, o.Image), (&statusFile{path: o.statusFile}).writable())
}

// fallbackPath is what execvp searches when there is no PATH.
const fallbackPath = "/bin:/usr/bin"

// lookup finds the file that a shell would execute for name. A name with a slash is a path, any other is searched for
// in the directories of path. The error is a *command.Failure with the status of a shell.
func lookup(name, path string) (string, error) {
	notFound := command.Exit(exitNotFound, fmt.Errorf("%q: command not found", name))
	if name == "" {
		return "", notFound
	}
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", execFailure(name, err)
		}
		return name, nil
	}
	if path == "" {
		path = fallbackPath
	}
	var refused error
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		file := filepath.Join(dir, name)
		if dir == "." {
			file = "./" + name
		}
		switch err := executable(file); {
		case err == nil:
			return file, nil
		case errors.Is(err, unix.EACCES) && refused == nil && command.Exists(file):
			refused = execFailure(file, err)
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", notFound
}

// executable tells whether the effective user may execute the regular file at path.
func executable(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return unix.EISDIR
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return unix.EACCES
	}
	return unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS)
}

// execFailure is why a file was not executed, with the status of a shell.
func execFailure(name string, err error) error {
	code := exitNotExec
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
		code = exitNotFound
	}
	return command.Exit(code, fmt.Errorf("%q: %w", name, err))
}
