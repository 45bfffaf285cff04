package cluster_test

import (
	"testing"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) { sandbox.Main(m) }
