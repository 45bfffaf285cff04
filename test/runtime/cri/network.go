package cri

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	runtimev1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// configName is the network configuration's file.
const configName = "10-vpcroute.conflist"

// Configure writes the network configuration, beside its place and then renamed,
// and waits until the runtime has read it.
func (n *Node) Configure(t testing.TB, conflist []byte) {
	t.Helper()
	if err := n.WriteConfig(conflist); err != nil {
		t.Fatal(err)
	}
	n.await(t, string(conflist))
}

// WriteConfig is Configure without the wait.
func (n *Node) WriteConfig(conflist []byte) error {
	temporary := filepath.Join(n.ConfigDir, ".new")
	if err := os.WriteFile(temporary, conflist, 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(n.ConfigDir, configName))
}

// Unconfigure removes the network configuration and waits until the runtime has
// noticed.
func (n *Node) Unconfigure(t testing.TB) {
	t.Helper()
	if err := os.Remove(filepath.Join(n.ConfigDir, configName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	n.await(t, "")
}

func (n *Node) await(t testing.TB, conflist string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	for {
		loaded, err := n.loaded(ctx)
		if err != nil {
			t.Fatalf("the runtime's network configuration: %v", err)
		}
		if loaded == conflist {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the runtime uses the network configuration\n%s\nwant\n%s", loaded, conflist)
		case <-time.After(pollInterval):
		}
	}
}

// loaded is the text of the network configuration that the runtime uses, empty
// when it has none.
func (n *Node) loaded(ctx context.Context) (string, error) {
	r, err := n.runtime.Status(ctx, &runtimev1.StatusRequest{Verbose: true})
	if err != nil {
		return "", err
	}
	for _, c := range r.GetStatus().GetConditions() {
		if c.GetType() == runtimev1.NetworkReady && !c.GetStatus() {
			return "", nil
		}
	}
	var info struct {
		Networks []struct {
			IFName string
			Config struct{ Source string }
		}
	}
	if err := json.Unmarshal([]byte(r.GetInfo()["cniconfig"]), &info); err != nil {
		return "", err
	}
	for _, network := range info.Networks {
		if network.IFName != "lo" {
			return network.Config.Source, nil
		}
	}
	return "", nil
}
