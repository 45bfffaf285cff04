//go:build !no_tencent

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/tencent"
)

func init() { clouds["tencent"] = func() cloud { return &onTencent{} } }

// An onTencent is Tencent Cloud's part of the flags.
type onTencent struct {
	mode        string
	config      tencent.Config
	credentials tencent.CredentialOptions
}

func (c *onTencent) bind(f *pflag.FlagSet) {
	sources := []string{tencent.FromAnywhere, tencent.FromEnvironment, tencent.FromFile, tencent.FromPodIdentity, tencent.FromCVMRole}
	f.StringVar(&c.mode, "tencent-mode", string(tencent.GlobalRoute), "`kind` of route table on Tencent Cloud: global-route (the cluster's, in the container service) or vpc (the VPC's own)")
	f.StringVar(&c.config.Region, "tencent-region", "", "`region` of the VPC, for example ap-guangzhou")
	f.StringVar(&c.config.VpcID, "tencent-vpc-id", "", "`id` of the VPC, for example vpc-f49l6u0z")
	f.StringArrayVar(&c.config.Tables, "tencent-table", nil, "name of the cluster route table (the cluster id when left out), or `id` of a VPC route table (repeat it for more)")
	f.StringVar(&c.config.TableTag, "tencent-table-tag", "", "`key=value` that the VPC route tables to write to are tagged with; without it and --tencent-table they are those that subnets of the VPC use")
	f.BoolVar(&c.config.CreateTable, "tencent-create-table", false, "make the cluster route table if it does not exist")
	f.IntVar(&c.config.BatchSize, "tencent-batch-size", tencent.DefaultBatchSize, "most `routes` in one call of mode vpc, 1 to 100")
	f.DurationVar(&c.config.CallTimeout, "tencent-timeout", tencent.DefaultCallTimeout, "`time` that one call of the API may take")
	f.StringVar(&c.credentials.Source, "tencent-credentials", tencent.FromAnywhere, "`source` of the keys: "+strings.Join(sources, ", "))
	f.StringVar(&c.credentials.Role, "tencent-cvm-role", "", "`name` of the role bound to the machine; asked for when left out")
	f.StringVar(&c.credentials.MetadataURL, "tencent-metadata-url", tencent.DefaultMetadataURL, "`URL` of the machine's metadata service")
	f.StringVar(&c.config.Endpoint.URL, "tencent-endpoint", "", "`URL` of the API, for all its services, in place of https://SERVICE.tencentcloudapi.com")
	f.StringVar(&c.config.Endpoint.Domain, "tencent-domain", "", "`domain` of the API behind the services' names, for example intl.tencentcloudapi.com")
}

func (c *onTencent) open(ctx context.Context, o *options, ranges []netip.Prefix) (vpc.RouteTable, float64, error) {
	config := c.config
	config.Mode, config.Owner, config.ClusterCIDRs = tencent.Mode(c.mode), o.clusterID, ranges
	config.Version = version
	config.OnCall = func(c tencent.Call) { o.onCall(c.Action, c.Duration, c.Err) }
	rate := float64(tencent.DefaultWritesPerSecond)
	if o.qps > 0 {
		rate = o.qps
	}
	config.WritesPerSecond = rate
	c.credentials.Getenv, c.credentials.Endpoint = os.Getenv, config.Endpoint
	credentials, err := tencent.FindCredentials(c.credentials)
	if err != nil {
		// Whatever else is wrong is told at the same time.
		config.Credentials = tencent.StaticCredentials("", tencent.Secret{}, tencent.Secret{})
		return nil, 0, fmt.Errorf("--vpc tencent: %w", errors.Join(err, config.Validate()))
	}
	config.Credentials = credentials
	table, err := tencent.New(ctx, config)
	if err != nil {
		return nil, 0, fmt.Errorf("--vpc tencent: %w", err)
	}
	return table, rate, nil
}
