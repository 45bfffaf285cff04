//go:build !no_aws

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/aws"
)

func init() { clouds["aws"] = func() cloud { return &onAWS{} } }

// An onAWS is AWS's part of the flags.
type onAWS struct {
	check   string
	config  aws.Config
	account aws.AccountOptions
}

func (c *onAWS) bind(f *pflag.FlagSet) {
	f.StringVar(&c.account.Region, "aws-region", "", "`region` of the VPC, for example eu-central-1; AWS_REGION or the profile's when left out")
	f.StringVar(&c.account.Profile, "aws-profile", "", "`profile` of the shared configuration and credentials files")
	f.StringVar(&c.config.VpcID, "aws-vpc-id", "", "`id` of the VPC, for example vpc-0a1b2c3d; needed unless tables are named")
	f.StringArrayVar(&c.config.Tables, "aws-table", nil, "`id` of a route table (repeat it for more)")
	f.StringVar(&c.config.TableTag, "aws-table-tag", "", "`key=value` that the route tables to write to are tagged with; without it and --aws-table they are those that subnets of the VPC use")
	f.StringVar(&c.check, "aws-source-dest-check", string(aws.SwitchOff), "what to `do` about the source and destination check of the nodes' interfaces: switch-off or report")
	f.IntVar(&c.config.RoutesPerTable, "aws-routes-per-table", aws.DefaultRoutesPerTable, "quota of `routes` of one family in a route table")
	f.DurationVar(&c.config.CallTimeout, "aws-timeout", aws.DefaultCallTimeout, "`time` that one call of the API may take")
	f.StringVar(&c.config.Endpoint, "aws-endpoint", "", "`URL` of the API in place of the region's")
}

func (c *onAWS) open(ctx context.Context, o *options, ranges []netip.Prefix) (vpc.RouteTable, float64, error) {
	config := c.config
	config.Check, config.Owner, config.ClusterCIDRs, config.Version = aws.Check(c.check), o.clusterID, ranges, version
	config.OnCall = func(call aws.Call) { o.onCall(call.Action, call.Duration, call.Err) }
	rate := float64(aws.DefaultWritesPerSecond)
	if o.qps > 0 {
		rate = o.qps
	}
	config.WritesPerSecond = rate
	var errs []error
	if o.nodes != "" && o.ledger == "" {
		errs = append(errs, errors.New("--ledger is missing: routes on AWS carry no mark, so a file has to say which are ours, for example --ledger /var/lib/vpcroute/ledger"))
	}
	account, err := aws.OpenAccount(ctx, c.account)
	if err != nil {
		account = aws.StaticAccount(c.account.Region, "", "", "") // whatever else is wrong is told at the same time
	}
	config.Account = account
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, 0, fmt.Errorf("--vpc aws: %w", errors.Join(err, config.Validate()))
	}
	table, err := aws.New(ctx, config)
	if err != nil {
		return nil, 0, fmt.Errorf("--vpc aws: %w", err)
	}
	return table, rate, nil
}
