package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// errPodsLeft is uninstall's answer while pods are attached.
var errPodsLeft = errors.New("not everything could be removed")

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "node-agent",
		Short: "Keep a node fit for the vpcroute CNI plugin",
		Long: `node-agent installs the CNI plugin and its configuration, keeps kernel settings and
masquerade rules as they are needed, and serves /whoami, /healthz, /readyz,
/metrics and /facts. It waits for its Node's podCIDR and follows it.`,
		Example: `  node-agent --node-name node-1 --cluster-cidr 10.244.0.0/16
  node-agent --pod-cidr 10.244.1.0/24 --node-ip 172.31.0.11 --node-name node-1
  node-agent uninstall`,
		Args:          cobra.NoArgs,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.settings()
			if err != nil {
				return err
			}
			return serve(cmd.Context(), s, cmd.ErrOrStderr())
		},
	}
	o.bind(root.PersistentFlags())
	root.AddCommand(newUninstall(&o))
	return root
}

func newUninstall(o *options) *cobra.Command {
	var stay bool
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Take everything of ours from this node, the configuration first",
		Long: `Take the configuration away, so that no further pod comes, and then, when no pod is
attached any more, the bridge, the rules and the programs. Pods that are there
keep their traffic. The exit code is 0 when nothing is left and 3 when something
stays for pods that are attached; run it again when they are gone, or have it
--stay and do so itself.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.uninstalling = true
			s, err := o.settings()
			if err != nil {
				return err
			}
			if stay {
				return serveUninstall(cmd.Context(), s, cmd.ErrOrStderr())
			}
			left, err := s.agent.Uninstall()
			if err != nil {
				return err
			}
			if left != "" {
				return fmt.Errorf("%w: %s", errPodsLeft, left)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "nothing of ours is left on this node")
			return nil
		},
	}
	c.Flags().BoolVar(&stay, "stay", false, "do not end, but try again each --period and say on /readyz whether anything is left")
	return c
}
