// Package stands lists the emulated clouds that can be run by hand, for the
// command emulator and for the demo. It must not know what any of them does.
package stands

import (
	"flag"

	"github.com/vpcroute/vpcroute/test/cloud"
	"github.com/vpcroute/vpcroute/test/cloud/aws"
	"github.com/vpcroute/vpcroute/test/cloud/azure"
	"github.com/vpcroute/vpcroute/test/cloud/gcp"
	"github.com/vpcroute/vpcroute/test/cloud/tencent"
)

// Clouds makes an emulator of each cloud for use by hand: called with a set of
// flags it adds its own, and returns what makes the emulator when they are read.
var Clouds = map[string]func(f *flag.FlagSet) func() (cloud.Stand, error){
	"aws":     aws.ByHand,
	"azure":   azure.ByHand,
	"gcp":     gcp.ByHand,
	"tencent": tencent.ByHand,
}
