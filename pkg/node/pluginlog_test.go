package node_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vpcroute/vpcroute/pkg/node"
)

func TestPluginLogIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cni.log")
	write := func(lines string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(lines); err != nil {
			t.Fatal(err)
		}
	}
	const addLine, delLine = `{"msg":"ADD","milliseconds":3.5}` + "\n", `{"level":"ERROR","msg":"DEL","milliseconds":20,"code":999,"error":"x"}` + "\n"
	add, del := node.Call{Verb: "ADD", Duration: 3500 * time.Microsecond}, node.Call{Verb: "DEL", Duration: 20 * time.Millisecond, Code: 999}

	write(addLine) // before the agent started: it has been counted already
	l, err := node.FollowPluginLog(path)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(when string, want ...node.Call) {
		t.Helper()
		got, err := l.Next()
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", when, d)
		}
	}
	expect("nothing new")
	write(addLine + delLine)
	expect("two calls", add, del)
	write(addLine[:10])
	expect("half a line")
	write(addLine[10:] + "not the plugin's\n")
	expect("the other half", add)
	write(delLine)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(addLine)
	expect("renamed in between", del, add)
	expect("nothing new again")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	expect("log is gone")
	write(delLine)
	expect("a new log", del)
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write(addLine)
	expect("truncated", add)
}

func TestPluginLogMayComeLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cni.log")
	l, err := node.FollowPluginLog(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(`{"msg":"ADD","milliseconds":1}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if calls, err := l.Next(); err != nil || len(calls) != 1 {
		t.Errorf("%v, %v", calls, err)
	}
}
