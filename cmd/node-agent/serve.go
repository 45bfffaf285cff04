package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/vpcroute/vpcroute/pkg/node"
)

// An observer is told what matters to people beyond the log: it writes Events.
type observer interface {
	warn(reason, message string)
}

// serve runs the agent until the context ends. The node stays as it is then.
func serve(ctx context.Context, s settings, stderr io.Writer) error {
	log := newLogger(s.logFormat, stderr)
	log.Info("node-agent starts", "version", version, "node", s.name())
	for _, note := range s.notes {
		log.Info(note)
	}
	calls, err := node.FollowPluginLog(s.logFile)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	l := &loop{settings: s, log: log, calls: calls, state: newState(s), wake: make(chan struct{}, 1)}
	server := &http.Server{Handler: l.state.handler(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := l.follow(ctx); err != nil {
		return err
	}
	go watchRules(ctx, l.poke)
	go l.forgetReleased(ctx)
	l.run(ctx)
	log.Info("node-agent ends; the node stays as it is")
	shutdown, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := server.Shutdown(shutdown); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func newLogger(format string, w io.Writer) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// A loop makes one pass after the other: when something happened, and when the
// period is over.
type loop struct {
	settings
	log      *slog.Logger
	observer observer
	calls    *node.PluginLog
	state    *state
	current  func() node.Node
	wake     chan struct{}

	said []string // what the last pass had to say, so that it is said once
}

// poke asks for a pass soon; it never blocks.
func (l *loop) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *loop) run(ctx context.Context) {
	const firstRetry = time.Second
	retry := firstRetry
	for {
		wait := l.period
		if err := l.pass(); err != nil {
			wait, retry = min(retry, l.period), retry*2
		} else {
			retry = firstRetry
		}
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-time.After(wait):
		}
	}
}

// pass looks at the node once, and tells of what changed since the last time.
func (l *loop) pass() error {
	n := l.current()
	report, err := l.agent.Reconcile(n)
	if err == nil && report.Ready && l.forward != nil {
		var changed bool
		if changed, err = l.forward.EnsureForward(l.agent.Bridge); changed {
			report.Changed = append(report.Changed, "had forwarding accepted for "+l.agent.Bridge)
		}
	}
	l.tell(report, err)
	l.state.set(n, report, err)
	if calls, err := l.calls.Next(); err != nil {
		l.log.Warn("cannot count the plugin's calls", "error", err)
	} else {
		l.state.count(calls)
	}
	return err
}

func (l *loop) tell(r node.Report, err error) {
	for _, c := range r.Changed {
		l.log.Info(c)
	}
	said := slices.Clone(r.Warnings)
	if r.Waiting != "" {
		said = append(said, r.Waiting)
	}
	for _, d := range r.Drifts {
		if d.Ours {
			l.log.Warn("repaired a kernel setting that somebody changed", "drift", d.String())
		} else {
			said = append(said, d.String())
		}
	}
	if err != nil {
		said = append(said, "cannot serve pods: "+err.Error())
	}
	for _, message := range said {
		if slices.Contains(l.said, message) {
			continue
		}
		l.log.Warn(message)
		if l.observer != nil {
			l.observer.warn("NodeNotFit", message)
		}
	}
	if len(l.said) > 0 && len(said) == 0 {
		l.log.Info("the node is fit for pods")
	}
	l.said = said
}

// follow finds out where the node comes from, and has changes of it wake the
// loop.
func (l *loop) follow(ctx context.Context) error {
	if l.standalone != nil {
		l.current = func() node.Node { return *l.standalone }
		return nil
	}
	w, err := watchNode(ctx, l.kubeconfig, l.nodeName, l.poke)
	if err != nil {
		return fmt.Errorf("watch node %s: %w", l.nodeName, err)
	}
	l.current, l.observer = w.node, w
	return nil
}
