package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/vpcroute/vpcroute/pkg/routes"
	"github.com/vpcroute/vpcroute/pkg/routes/file"
)

// control keeps the table in step with a nodes file until ctx ends.
func control(ctx context.Context, s settings, logs io.Writer) (err error) {
	log := s.log.logger(logs)
	if _, err := file.ReadNodes(s.nodes); err != nil {
		return err
	}
	ledger, closeLedger, err := s.openLedger()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLedger()) }()
	watch := newMonitor(func() error { return nil }, s.requests)
	stop, err := watch.serve(s.http)
	if err != nil {
		return err
	}
	defer stop()
	s.config.Table = watch.counted(s.config.Table)
	s.config.Ledger, s.config.Observer, s.config.Meter = ledger, journal{log}, watch.meter
	engine, err := routes.New(s.config)
	if err != nil {
		return err
	}
	if err := logFindings(ctx, s.config.Table, log); err != nil {
		return err
	}
	watch.follow(engine, nil)
	watcher := file.Watcher{
		Path: s.nodes,
		Nodes: func(nodes []routes.Node) {
			log.Info("nodes file read", "file", s.nodes, "nodes", len(nodes))
			engine.SetNodes(nodes)
		},
		Broken: func(err error) {
			log.Error("nodes file cannot be believed: the last good list stays in force", "error", err)
		},
	}
	log.Info("route controller starts", "version", version, "clusterID", s.config.Owner, "clusterCIDRs", fmt.Sprint(s.config.Ranges))
	var watching sync.WaitGroup
	watching.Go(func() { watcher.Run(ctx) })
	err = engine.Run(ctx)
	watching.Wait()
	log.Info("route controller ends; the routes stay")
	return err
}

// openLedger opens the ledger for writing.
func (s settings) openLedger() (routes.Ledger, func() error, error) {
	if s.ledger == "" {
		return routes.Memory{}, func() error { return nil }, nil
	}
	ledger, err := file.Open(s.ledger, s.config.Owner)
	if err != nil {
		return nil, nil, err
	}
	return ledger, ledger.Close, nil
}
