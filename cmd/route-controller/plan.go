package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"text/tabwriter"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/routes/file"
	"github.com/vpcroute/vpcroute/pkg/routes/kube"
	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// plan prints what the controller would change. It writes nothing else.
func plan(ctx context.Context, s settings, out io.Writer) error {
	nodes, err := s.readAll(ctx)
	if err != nil {
		return err
	}
	preview, err := routes.Look(ctx, s.config, nodes)
	if err != nil {
		return err
	}
	return printPlan(out, newPlanned(preview), s.json)
}

// readAll reads the Nodes and has the ledger ready for reading.
func (s *settings) readAll(ctx context.Context) ([]routes.Node, error) {
	if s.cluster {
		client, err := s.connect()
		if err != nil {
			return nil, err
		}
		s.config.Ledger = kube.NewRoutes(client)
		return client.ListNodes(ctx)
	}
	nodes, err := file.ReadNodes(s.nodes)
	if err != nil {
		return nil, err
	}
	s.config.Ledger = routes.Memory{}
	if s.ledger != "" {
		s.config.Ledger, err = file.Peek(s.ledger, s.config.Owner)
	}
	return nodes, err
}

// planned is the printed form of a preview.
type planned struct {
	Changes   []plannedChange   `json:"changes"`
	Held      []plannedChange   `json:"held"`
	Conflicts []plannedConflict `json:"conflicts"`
	Nodes     []plannedNode     `json:"nodes"`
	Tables    []plannedTable    `json:"tables"`
}

type plannedChange struct {
	Op          vpc.Op       `json:"op"`
	Table       string       `json:"table"`
	Destination netip.Prefix `json:"destination"`
	NextHop     vpc.NextHop  `json:"nextHop"`
	OldNextHop  vpc.NextHop  `json:"oldNextHop,omitempty"`
	Node        string       `json:"node,omitempty"`
	Reason      string       `json:"reason"`
}

type plannedConflict struct {
	Table       string      `json:"table"`
	Destination string      `json:"destination"`
	NextHop     vpc.NextHop `json:"nextHop,omitempty"`
	Node        string      `json:"node,omitempty"`
	Reason      string      `json:"reason"`
}

type plannedNode struct {
	Node        string        `json:"node"`
	Table       string        `json:"table,omitempty"`
	Destination string        `json:"destination,omitempty"`
	State       routes.State  `json:"state"`
	Reason      routes.Reason `json:"reason"`
	Message     string        `json:"message"`
}

type plannedTable struct {
	Table string `json:"table"`
	Used  int    `json:"used"`
	Max   int    `json:"max,omitempty"`
}

func newPlanned(p routes.Preview) planned {
	out := planned{
		Changes: plannedChanges(p.Changes), Held: plannedChanges(p.Held),
		Conflicts: []plannedConflict{}, Nodes: []plannedNode{}, Tables: []plannedTable{},
	}
	for _, c := range p.Conflicts {
		out.Conflicts = append(out.Conflicts, plannedConflict{c.Route.Table, destination(c.Route), c.Route.NextHop, c.Node, c.Reason})
	}
	for _, r := range p.Routes {
		n := plannedNode{Node: r.Node, Table: r.Table, State: r.State, Reason: r.Reason, Message: r.Message}
		if r.Destination.IsValid() {
			n.Destination = r.Destination.String()
		}
		out.Nodes = append(out.Nodes, n)
	}
	for _, t := range p.Tables {
		out.Tables = append(out.Tables, plannedTable{t.Table, t.Used, t.Max})
	}
	return out
}

func plannedChanges(changes []vpc.Change) []plannedChange {
	out := []plannedChange{}
	for _, c := range changes {
		out = append(out, plannedChange{c.Op, c.Route.Table, c.Route.Destination, c.Route.NextHop, c.Old.NextHop, c.Route.Node, c.Reason})
	}
	return out
}

func destination(r vpc.Route) string {
	if r.Destination.IsValid() {
		return r.Destination.String()
	}
	return r.Text
}

func printPlan(out io.Writer, p planned, asJSON bool) error {
	if asJSON {
		return printJSON(out, p)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "CHANGE\tDESTINATION\tNEXT HOP\tNODE\tTABLE\tREASON")
	row := func(what, destination string, hop vpc.NextHop, node, table, reason string) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", what, cmp.Or(destination, "-"), cmp.Or(hop, "-"), cmp.Or(node, "-"), cmp.Or(table, "-"), reason)
	}
	for _, c := range p.Changes {
		row(string(c.Op), c.Destination.String(), c.NextHop, c.Node, c.Table, c.Reason)
	}
	for _, c := range p.Held {
		row("held "+string(c.Op), c.Destination.String(), c.NextHop, c.Node, c.Table, c.Reason)
	}
	for _, c := range p.Conflicts {
		row("conflict", c.Destination, c.NextHop, c.Node, c.Table, c.Reason)
	}
	for _, n := range p.Nodes {
		row("no route", n.Destination, "", n.Node, n.Table, n.Message)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d to change, %d held back, %d conflicts, %d without a route\n", len(p.Changes), len(p.Held), len(p.Conflicts), len(p.Nodes))
	return err
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
