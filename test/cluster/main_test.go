package cluster_test

import (
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vpcroute/vpcroute/test/sandbox"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // the client library complains where there is none
	sandbox.Main(m)
}
