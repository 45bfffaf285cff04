package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud"
	"github.com/vpcroute/vpcroute/test/cloud/stands"
	"github.com/vpcroute/vpcroute/test/netns"
	"github.com/vpcroute/vpcroute/test/sandbox"
)

func cloudNames() string { return strings.Join(slices.Sorted(maps.Keys(stands.Clouds)), ", ") }

func checkCloud(name string) error {
	if name != "" && stands.Clouds[name] == nil {
		return fmt.Errorf("-cloud %s: want one of %s", name, cloudNames())
	}
	return nil
}

// newStand makes the emulator of a cloud, whose machines have the addresses of
// the box's nodes.
func newStand(name string) (cloud.Stand, error) {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	newEmulator := stands.Clouds[name](f)
	if err := f.Parse(nil); err != nil {
		return cloud.Stand{}, err
	}
	return newEmulator()
}

// emulate starts the cloud's API as a process of the box and has the controller
// talk to it.
func (d *demo) emulate() error {
	d.step("The route controller reads the cluster's Nodes and calls the API of %s (emulated)", d.cloud)
	stand, err := newStand(d.cloud)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer file.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	url := "http://" + l.Addr().String()
	env := stand.Env(url, d.box.Dir)
	api := exec.Command(self, emulateVerb, d.cloud, d.box.Router.Name, url, d.box.Dir)
	api.ExtraFiles = []*os.File{file}
	if d.api, err = d.box.Start(nil, api); err != nil {
		return err
	}
	if err := answered(url); err != nil {
		return err
	}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	for i, n := range d.box.Nodes {
		if stand.ProviderID != nil {
			n.ProviderID = stand.ProviderID(i + 1)
		}
	}
	d.box.VPCFlags = stand.Flags(url)
	return nil
}

// answered waits until the API answers anything: its files are there then.
func answered(url string) error {
	client := http.Client{Timeout: waitTime}
	a, err := client.Get(url)
	if err != nil {
		return fmt.Errorf("the emulated API: %w", err)
	}
	return a.Body.Close()
}

// emulateVerb answers a cloud's API in a process of its own.
const emulateVerb = "emulate"

// emulate serves the API of a cloud, whose table programs a router, on the
// listener that it was started with, and prints every call.
func emulate(ctx context.Context, args []string) error {
	if len(args) != 4 {
		return fmt.Errorf("%s: want the cloud, the router's namespace, the URL and a directory for files", emulateVerb)
	}
	stand, err := newStand(args[0])
	if err != nil {
		return err
	}
	_ = stand.Env(args[2], args[3]) // for the files: keys are this process's own
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	box := &netns.Box{Router: &sandbox.Namespace{Name: args[1]}}
	stand.Program = cloud.Programmer(box.Route, box.Unroute, func(err error) { fmt.Println("router:", err) })
	stand.Watch(func(c cloud.Call) {
		fmt.Println(c.At.Format(time.TimeOnly), c.Operation, c.Code, c.Detail)
	})
	server := &http.Server{Handler: stand.Handler, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// callsHint says where the calls of the API stand.
func (d *demo) callsHint() string {
	if d.api == nil {
		return fmt.Sprintf("ls %s\tthe box's files", d.box.Dir)
	}
	return fmt.Sprintf("cat %s\tthe calls of the API", filepath.Clean(d.api.LogFile))
}
