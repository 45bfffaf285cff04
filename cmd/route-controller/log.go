package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/vpcroute/vpcroute/pkg/routes"
)

type logSettings struct {
	json  bool
	level slog.Level
}

func (o *options) logging() (logSettings, error) {
	s := logSettings{json: o.logFormat == "json"}
	if o.logFormat != "json" && o.logFormat != "text" {
		return s, fmt.Errorf("--log-format is %q: want text or json", o.logFormat)
	}
	if err := s.level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return s, fmt.Errorf("--log-level is %q: want debug, info, warn or error", o.logLevel)
	}
	return s, nil
}

func (s logSettings) logger(to io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: s.level}
	if s.json {
		return slog.New(slog.NewJSONHandler(to, options))
	}
	return slog.New(slog.NewTextHandler(to, options))
}

// A journal writes what the engine reports to a log.
type journal struct {
	log *slog.Logger
}

// Route logs what has become of a route.
func (j journal) Route(s routes.RouteStatus) {
	if s.State == routes.Gone && s.Table == "" {
		return // it stood for what is told by table now, or for a Node without a range: no route went
	}
	j.log.Log(context.Background(), routeLevel(s.State), "route", attributes(
		"node", s.Node, "table", s.Table, "destination", s.Destination, "nextHop", s.NextHop,
		"state", s.State, "reason", s.Reason, "message", s.Message)...)
}

// attributes drops those that are empty.
func attributes(pairs ...any) []any {
	var kept []any
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" && text != "invalid Prefix" {
			kept = append(kept, pairs[i], text)
		}
	}
	return kept
}

func routeLevel(s routes.State) slog.Level {
	switch s {
	case routes.Pending, routes.Programmed, routes.Deleting, routes.Excluded:
		return slog.LevelDebug
	case routes.Verified, routes.Gone:
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// Node logs whether a node's pods can be reached.
func (j journal) Node(s routes.NodeStatus) {
	level := slog.LevelInfo
	switch {
	case s.Gone:
		j.log.Info("node is gone", "node", s.Node)
		return
	case s.Verdict == routes.Undecided:
		level = slog.LevelDebug
	}
	j.log.Log(context.Background(), level, "node", "node", s.Node, "verdict", s.Verdict, "reason", s.Reason, "message", s.Message)
}

// Event logs anything else.
func (j journal) Event(e routes.Event) {
	level := slog.LevelWarn
	switch e.Kind {
	case routes.ConflictSolved, routes.ListWorks, routes.ProofRegained, routes.RouteAdopted:
		level = slog.LevelInfo
	}
	j.log.Log(context.Background(), level, "event", attributes(
		"kind", e.Kind, "node", e.Node, "table", e.Table, "destination", e.Destination, "message", e.Message)...)
}
