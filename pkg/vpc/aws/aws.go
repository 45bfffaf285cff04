// Package aws programs the route tables of an Amazon VPC: one route for each
// podCIDR and table, by the network interface that holds the node's address,
// and that interface's source and destination check.
//
// It uses the vendor's SDK for the wire and for credentials, with the SDK's
// retries off: a failed call is reported, classed, and never repeated here. It
// must not log and must not read flags or the environment, except through the
// SDK's own search for credentials in OpenAccount. Routes of a VPC carry no
// mark, so what is ours is for the caller's ledger to know; nothing here decides
// it.
package aws

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// New checks the configuration, reads the tables it names and returns them. It
// refuses tables of several VPCs, and a tag that no table has.
func New(ctx context.Context, c Config) (vpc.RouteTable, error) {
	c = c.withDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := &routeTables{api: newClient(c), config: c, switched: moments{}, nodes: map[vpc.NextHop]string{}}
	if c.VpcID == "" {
		named, err := t.api.tablesByID(ctx, c.Tables...)
		if err != nil {
			return nil, fmt.Errorf("route tables %v: %w", c.Tables, err)
		}
		for _, x := range named {
			t.config.VpcID = value(x.VpcId)
		}
	}
	tables, err := t.api.tablesOf(ctx, t.config.VpcID)
	if err != nil {
		return nil, fmt.Errorf("VPC %s: %w", t.config.VpcID, err)
	}
	if err := t.checkSelection(tables); err != nil {
		return nil, err
	}
	return t, nil
}

// checkSelection refuses names and tags that fit no table of the VPC.
func (t *routeTables) checkSelection(tables []types.RouteTable) error {
	if len(tables) == 0 {
		return vpc.Errorf(vpc.Invalid, "VPC %s: it has no route table that these credentials can see: correct the VPC id or the region", t.config.VpcID)
	}
	for _, id := range t.config.Tables {
		if !slices.ContainsFunc(tables, func(x types.RouteTable) bool { return value(x.RouteTableId) == id }) {
			return vpc.Errorf(vpc.Invalid, "route table %s: not in VPC %s: all tables must be of one VPC", id, t.config.VpcID)
		}
	}
	if tag := t.config.TableTag; tag != "" && !slices.ContainsFunc(tables, func(x types.RouteTable) bool { return tagged(x, tag) }) {
		return vpc.Errorf(vpc.Invalid, "table tag %q: no table of VPC %s has it", tag, t.config.VpcID)
	}
	return nil
}

// value is what the SDK's pointer leads to; the zero value when it is nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func ptr[T any](v T) *T { return &v }
