package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// build builds a program and returns it. Neither the folder it lies in nor the
// state of a version control system leaves a trace in the result.
func (o options) build(p program, on platform) ([]byte, error) {
	dir, err := os.MkdirTemp("", "images")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is in the folder for what may be left
	path := filepath.Join(dir, "program")
	if _, err := o.goTool(p, on, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X main.version="+o.version, "-o", path, p.pkg); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

// goTool runs the go command where a program's module is and returns what it
// prints.
func (o options) goTool(p program, on platform, verb string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", append([]string{verb}, args...)...)
	cmd.Dir = o.at(p.module)
	// GOFLAGS and GOAMD64 of the machine would change what is built.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+on.os, "GOARCH="+on.arch, "GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off")
	out, err := cmd.Output()
	if exit, ok := err.(*exec.ExitError); ok { //nolint:errorlint // Output wraps nothing
		return nil, fmt.Errorf("go %s %s: %w\n%s", verb, p.pkg, err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("go %s %s: %w", verb, p.pkg, err)
	}
	return out, nil
}
