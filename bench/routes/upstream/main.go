// Command upstream is the route controller of k8s.io/cloud-provider in the world
// of the benchmark, with the defaults of a cloud controller manager: its client
// speaks protobuf within 20 calls per second, it shares an informer of Nodes,
// compares every 10 seconds and logs at level 0. Left out are leader election
// and the page with metrics. It must not be held back by anything of ours.
package main

import (
	"context"
	"net"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/cloud-provider/controllers/route"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/features"

	"github.com/vpcroute/vpcroute/bench/routes/world"
)

func main() { world.Main(run) }

// resync is the least of the controller manager's --min-resync-period.
const resync = 12 * time.Hour

func run(ctx context.Context, s world.Surroundings) error {
	if err := features.SetupCurrentKubernetesSpecificFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		return err
	}
	err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		string(features.CloudControllerManagerWatchBasedRoutesReconciliation): s.Watching,
	})
	if err != nil {
		return err
	}
	s.Config.ContentType = "application/vnd.kubernetes.protobuf"
	if s.Config.QPS == 0 {
		s.Config.QPS, s.Config.Burst = 20, 30
	}
	client, err := kubernetes.NewForConfig(s.Config)
	if err != nil {
		return err
	}
	_, clusterCIDR, err := net.ParseCIDR(world.Range.String())
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, resync)
	controller, err := route.New(newProvider(s.Cloud, s.Rate), client, shared.Core().V1().Nodes(), "bench", []*net.IPNet{clusterCIDR})
	if err != nil {
		return err
	}
	shared.Start(ctx.Done())
	controller.Run(ctx, s.Period, controllersmetrics.NewControllerManagerMetrics("bench"))
	return ctx.Err()
}
