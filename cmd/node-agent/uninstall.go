package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// A removal is how far an uninstall is. It is safe for concurrent use.
type removal struct {
	mu   sync.Mutex
	left string // why it is not over
}

func (r *removal) set(left string) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed = r.left != left
	r.left = left
	return changed
}

// readyz is ok when nothing of ours is left.
func (r *removal) readyz(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left != "" {
		http.Error(w, r.left, http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// serveUninstall takes away what is ours until the context ends. It takes the
// agent's port first, which it gets only when no agent is left to put back what
// it removes.
func serveUninstall(ctx context.Context, s settings, stderr io.Writer) error {
	log := newLogger(s.logFormat, stderr)
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	r := &removal{left: "not tried yet"}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", r.readyz)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	for ctx.Err() == nil {
		left, err := s.agent.Uninstall()
		if err != nil {
			left = err.Error()
		}
		switch {
		case !r.set(left):
		case left == "":
			log.Info("nothing of ours is left on this node")
		default:
			log.Warn("not everything could be removed", "left", left)
		}
		select {
		case <-ctx.Done():
		case <-time.After(s.period):
		}
	}
	if err := server.Close(); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
