package main

import (
	"github.com/spf13/cobra"
)

func newRoot() *cobra.Command {
	var o options
	root := &cobra.Command{
		Use:   "route-controller",
		Short: "Keep a VPC route table in step with the nodes of a cluster",
		Long: `route-controller gives every node's podCIDR a route in the VPC's route table.

It changes only routes that it can prove to be its own, and leaves them in place
when it ends. "route-controller cleanup" removes them.`,
		Example: `  route-controller --nodes nodes.yaml --vpc linux --linux-netns /run/netns/vpc \
      --cluster-cidr 10.244.0.0/16 --cluster-cidr fd00:10:244::/48
  route-controller --nodes nodes.yaml --vpc linux --cluster-cidr 10.244.0.0/16 --dry-run -o json`,
		Args:          cobra.NoArgs,
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := o.settings(cmd.Context(), needNodes)
			if err != nil {
				return err
			}
			if o.dryRun {
				return plan(cmd.Context(), s, cmd.OutOrStdout())
			}
			if s.cluster {
				return serveCluster(cmd.Context(), s, cmd.ErrOrStderr())
			}
			return control(cmd.Context(), s, cmd.ErrOrStderr())
		},
	}
	o.bind(root.PersistentFlags())
	root.Flags().BoolVar(&o.dryRun, "dry-run", false, `print the plan with its reasons and exit; the same as "route-controller plan"`)
	root.AddCommand(
		&cobra.Command{
			Use:   "plan",
			Short: "Print what the controller would change, with reasons, and change nothing",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				s, err := o.settings(cmd.Context(), needNodes)
				if err != nil {
					return err
				}
				return plan(cmd.Context(), s, cmd.OutOrStdout())
			},
		},
		&cobra.Command{
			Use:   "cleanup",
			Short: "Delete every route that is provably ours, and say what is left",
			Long: `Delete every route that is provably ours from every managed table, and then what
the ledger says of them. In a cluster it also takes back the conditions that it
left on Nodes. End the controller first: one at work makes the routes again. The
exit code is 0 when none of ours is left, and 3 when some are.`,
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				s, err := o.settings(cmd.Context(), noNodes)
				if err != nil {
					return err
				}
				return cleanup(cmd.Context(), s, cmd.OutOrStdout())
			},
		},
		&cobra.Command{
			Use:   "check",
			Short: "Look for what would keep routes from working, and say how to fix it",
			Long: `Look for what would keep routes from working: permissions, subnets attached to
other tables, overlapping ranges, full tables. It changes nothing. The exit code
is 4 when an error was found.`,
			Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				s, err := o.settings(cmd.Context(), noNodes)
				if err != nil {
					return err
				}
				return check(cmd.Context(), s, cmd.OutOrStdout())
			},
		},
	)
	return root
}
