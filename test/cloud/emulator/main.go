// Command emulator runs one emulated cloud API by hand: it prints the
// environment and the flags with which the product talks to it, and then every
// call that it answers. It must not be taken for a cloud: what it follows, and
// from where that is known, is in the comments of the package below test/cloud.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/vpcroute/vpcroute/test/cloud"
	"github.com/vpcroute/vpcroute/test/cloud/stands"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "emulator:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	names := strings.Join(slices.Sorted(maps.Keys(stands.Clouds)), ", ")
	if len(args) == 0 || stands.Clouds[args[0]] == nil {
		return fmt.Errorf("usage: emulator CLOUD [flags], CLOUD being one of %s; emulator CLOUD --help names the flags", names)
	}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	listen := f.String("listen", "127.0.0.1:0", "address to listen on; port 0 takes a free one")
	newEmulator := stands.Clouds[args[0]](f)
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	stand, err := newEmulator()
	if err != nil {
		return err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	url := "http://" + l.Addr().String()
	fmt.Fprintf(out, "# %s at %s; end it with Ctrl-C\n%s\n", args[0], url, stand.Usage(url))
	server := &http.Server{Handler: stand.Handler, ReadHeaderTimeout: 10 * time.Second}
	stand.Watch(func(c cloud.Call) {
		fmt.Fprintf(out, "%s %s %s %s\n", c.At.Format(time.TimeOnly), c.Operation, c.Code, c.Detail)
	})
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
