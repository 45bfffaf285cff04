package node_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/vpcroute/vpcroute/pkg/node"
)

const writerEnv = "VPCROUTE_TEST_WRITER"

// TestWriterProcess is not a test of its own: it is the process that
// TestR045ReadersSeeWholeFiles kills. It rewrites a file until then.
func TestWriterProcess(t *testing.T) {
	path := os.Getenv(writerEnv)
	if path == "" {
		return
	}
	for i := 0; ; i++ {
		f := node.File{Path: path, Mode: 0o644, Content: document(i)}
		if _, err := f.Write(); err != nil {
			t.Fatal(err)
		}
	}
}

func document(i int) []byte {
	b, err := json.Marshal(map[string]any{"serial": i, "padding": strings.Repeat("x", 4096+i%4096), "whole": true})
	if err != nil {
		panic(err)
	}
	return b
}

// TestR045ReadersSeeWholeFiles reads a file as fast as it can while writers
// rewrite it and are killed at moments of no choosing.
func TestR045ReadersSeeWholeFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "10-vpcroute.conflist")
	var reads atomic.Int64
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := readWhole(path); err != nil {
				done <- err
				return
			}
			reads.Add(1)
		}
	}()
	for i := range 20 {
		w := exec.Command(os.Args[0], "-test.run=^TestWriterProcess$")
		w.Env = append(os.Environ(), writerEnv+"="+path)
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		waitForChange(t, path)
		time.Sleep(time.Duration(7*i%40) * time.Millisecond)
		_ = w.Process.Kill()
		_ = w.Wait()
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if reads.Load() < 1000 {
		t.Errorf("only %d reads", reads.Load())
	}
	loadable, err := libcni.ConfFiles(filepath.Dir(path), []string{".conf", ".conflist", ".json"})
	if err != nil || len(loadable) != 1 {
		t.Errorf("loadable files: %v, %v; want only the target", loadable, err)
	}
}

// waitForChange returns when the file is another one than at the call.
func waitForChange(t *testing.T, path string) {
	t.Helper()
	before, _ := os.Stat(path)
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if now, err := os.Stat(path); err == nil && (before == nil || !os.SameFile(before, now)) {
			return
		}
	}
	t.Fatal("the writer writes nothing")
}

func readWhole(path string) error {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var doc struct{ Whole bool }
	if err := json.Unmarshal(b, &doc); err != nil {
		return err
	}
	if !doc.Whole {
		return errors.New("half a document")
	}
	return nil
}

func inode(t *testing.T, path string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestUnchangedFileKeepsItsInode(t *testing.T) {
	f := node.File{Path: filepath.Join(t.TempDir(), "a", "b"), Mode: 0o644, Content: []byte("one")}
	write := func(want bool) {
		t.Helper()
		if changed, err := f.Write(); err != nil || changed != want {
			t.Fatalf("Write() = %v, %v, want %v", changed, err, want)
		}
	}
	write(true)
	before := inode(t, f.Path)
	write(false)
	if !os.SameFile(before, inode(t, f.Path)) {
		t.Error("an unchanged file was replaced")
	}
	f.Content = []byte("two")
	write(true)
	f.Mode = 0o600
	write(true)
	if got := inode(t, f.Path).Mode(); got != 0o600 {
		t.Errorf("mode is %v", got)
	}
}

func TestLinkInTheWayIsReplacedNotFollowed(t *testing.T) {
	dir := t.TempDir()
	elsewhere := filepath.Join(dir, "elsewhere")
	if err := os.WriteFile(elsewhere, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := node.File{Path: filepath.Join(dir, "ours"), Mode: 0o644, Content: []byte("theirs")}
	if err := os.Symlink(elsewhere, f.Path); err != nil {
		t.Fatal(err)
	}
	f.Content = []byte("ours")
	if _, err := f.Write(); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(elsewhere); string(got) != "theirs" {
		t.Errorf("wrote through the link: %q", got)
	}
	if info, err := os.Lstat(f.Path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v: not a file of ours", info, err)
	}
}

func TestRunningProgramCanBeReplaced(t *testing.T) {
	sleep, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Fatal(err)
	}
	f := node.File{Path: filepath.Join(t.TempDir(), "program"), Mode: 0o755, Content: sleep}
	if _, err := f.Write(); err != nil {
		t.Fatal(err)
	}
	running := exec.Command(f.Path, "60")
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = running.Process.Kill(); _ = running.Wait() }()
	f.Content = []byte("#!/bin/sh\necho new\n")
	if _, err := f.Write(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(f.Path).Output(); err != nil || !bytes.Equal(out, []byte("new\n")) {
		t.Errorf("%q, %v", out, err)
	}
}

// TestFailedWriteKeepsTheOldFile fills the disk under the writer.
func TestFailedWriteKeepsTheOldFile(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer func() { _ = exec.Command("umount", dir).Run() }()
	f := node.File{Path: filepath.Join(dir, "10-vpcroute.conflist"), Mode: 0o644, Content: []byte("old")}
	if _, err := f.Write(); err != nil {
		t.Fatal(err)
	}
	f.Content = bytes.Repeat([]byte("new"), 20_000)
	if _, err := f.Write(); err == nil {
		t.Fatal("no error on a full disk")
	}
	if got, err := os.ReadFile(f.Path); err != nil || string(got) != "old" {
		t.Errorf("the old file became %q, %v", got, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestRemoveTakesLeftoversToo(t *testing.T) {
	dir := t.TempDir()
	f := node.File{Path: filepath.Join(dir, "x"), Mode: 0o644, Content: []byte("x")}
	if _, err := f.Write(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".x.vpcroute-new"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}
