//go:build !no_azure

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vpcroute/vpcroute/pkg/vpc"
	"github.com/vpcroute/vpcroute/pkg/vpc/azure"
)

func init() { clouds["azure"] = func() cloud { return &onAzure{} } }

// An onAzure is Azure's part of the flags.
type onAzure struct {
	config      azure.Config
	credentials azure.CredentialOptions
	cloud, file string
}

func (c *onAzure) bind(f *pflag.FlagSet) {
	f.StringVar(&c.config.SubscriptionID, "azure-subscription", "", "`id` of the subscription, for example 00000000-0000-0000-0000-000000000000")
	f.StringVar(&c.config.ResourceGroup, "azure-resource-group", "", "resource `group` of the route tables, for example prod-network")
	f.StringArrayVar(&c.config.Tables, "azure-table", nil, "`name` of a route table, GROUP/NAME in another group, or its id (repeat it for more)")
	f.StringVar(&c.config.TableTag, "azure-table-tag", "", "`key=value` that the route tables of the resource group to write to are tagged with, in place of --azure-table")
	f.IntVar(&c.config.MaxRoutes, "azure-max-routes", azure.DefaultMaxRoutes, "most `routes` in a table; the API does not tell the subscription's limit")
	f.BoolVar(&c.config.SetForwarding, "azure-set-forwarding", false, "switch on IP forwarding of a node's network interface where it is off")
	f.DurationVar(&c.config.CallTimeout, "azure-timeout", azure.DefaultCallTimeout, "`time` that one call of the API may take")
	f.DurationVar(&c.config.WriteTimeout, "azure-write-timeout", azure.DefaultWriteTimeout, "`time` that one write may take with the operation that it starts")
	f.StringVar(&c.credentials.Source, "azure-credentials", azure.FromAnywhere, "`source` of tokens: "+strings.Join(azure.Sources(), ", "))
	f.StringVar(&c.credentials.ClientID, "azure-client-id", "", "client `id` of the managed identity or the workload identity, where there are several")
	f.StringVar(&c.file, "azure-cloud-config", "", "`file` azure.json of cloud-provider-azure, for what no flag gives")
	f.StringVar(&c.cloud, "azure-cloud", "", "`name` of the cloud: AzurePublicCloud, AzureUSGovernmentCloud or AzureChinaCloud")
	f.StringVar(&c.config.Endpoint.URL, "azure-endpoint", "", "`URL` of the resource manager, in place of the cloud's own")
}

func (c *onAzure) open(ctx context.Context, o *options, ranges []netip.Prefix) (vpc.RouteTable, float64, error) {
	config, credentials, err := c.settle()
	config.Owner, config.ClusterCIDRs, config.Version = o.clusterID, ranges, version
	var tokenErr error
	if config.Credential, tokenErr = azure.FindCredential(credentials); tokenErr != nil {
		config.Credential = azure.NoCredential{} // whatever else is wrong is told at the same time
	}
	if err = errors.Join(err, tokenErr); err != nil {
		return nil, 0, fmt.Errorf("--vpc azure: %w", errors.Join(err, config.Validate()))
	}
	table, err := azure.New(ctx, config)
	if err != nil {
		return nil, 0, fmt.Errorf("--vpc azure: %w", err)
	}
	return table, azure.DefaultCallsPerSecond, nil
}

// settle fills what no flag gives from the cloud config file.
func (c *onAzure) settle() (azure.Config, azure.CredentialOptions, error) {
	config, credentials, name := c.config, c.credentials, c.cloud
	if c.file != "" {
		f, err := azure.ReadCloudFile(c.file)
		if err != nil {
			return config, credentials, err
		}
		credentials.File, name = f, cmp.Or(name, f.Cloud)
		config.SubscriptionID = cmp.Or(config.SubscriptionID, f.SubscriptionID)
		config.ResourceGroup = cmp.Or(config.ResourceGroup, f.RouteTableResourceGroup, f.ResourceGroup)
		if len(config.Tables) == 0 && config.TableTag == "" && f.RouteTableName != "" {
			config.Tables = []string{f.RouteTableName}
		}
	}
	var err error
	config.Endpoint.Cloud, err = azure.FindCloud(name)
	credentials.Endpoint.Cloud = config.Endpoint.Cloud
	return config, credentials, err
}
