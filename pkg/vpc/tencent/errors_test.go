package tencent

import (
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// Codes decide by the part after the dot, whatever family it comes under; the
// lists are those of the SDK for the actions that are used.
func TestCodesHaveClasses(t *testing.T) {
	tests := map[vpc.Class][]string{
		vpc.Exists: {
			"InternalError.CidrConflictWithOtherRoute", "InvalidParameter.CidrConflictWithOtherRoute",
			"InternalError.GatewayAlreadyAssociatedCidr", "InvalidParameter.GatewayAlreadyAssociatedCidr",
			"InternalError.ResourceExistAlready", "ResourceInUse.ResourceExistAlready",
			"InvalidParameterValue.Duplicate", "UnsupportedOperation.Ecmp", "UnsupportedOperation.EcmpWithUserRoute", "UnsupportedOperation.EcmpWithCcnRoute",
		},
		vpc.NotFound: {
			"InternalError.RouteTableNotFound", "ResourceNotFound.RouteTableNotFound", "InternalError.CvmNotFound", "ResourceNotFound",
			"UnsupportedOperation.RecordNotExists", "InvalidRouteId.NotFound", "InvalidRouteTableId.NotFound",
		},
		vpc.Invalid: {
			"InternalError.CidrOutOfRouteTable", "InvalidParameter.CidrOutOfRouteTable", "InternalError.Param", "FailedOperation.Param", "InvalidParameter.Param",
			"InternalError.CidrConflictWithVpcCidr", "InvalidParameter", "InvalidParameterValue.Malformed", "InvalidParameterValue.VpcCidrConflict",
			"InvalidParameterValue.LimitExceeded", "UnsupportedOperation.ConflictWithDockerRoute", "UnsupportedOperation.SystemRoute",
			"UnsupportedOperation.DisabledNotifyCcn", "MissingParameter", "UnknownParameter.WithGuess", "UnsupportedRegion", "InvalidAction",
		},
		vpc.Quota:      {"LimitExceeded", "InternalError.QuotaMaxRtLimit", "LimitExceeded.CidrBlock"},
		vpc.Throttled:  {"RequestLimitExceeded", "RequestLimitExceeded.UinLimitExceeded", "RequestLimitExceeded.IPLimitExceeded", "LimitExceeded.ActionLimited"},
		vpc.Denied:     {"AuthFailure.SignatureExpire", "AuthFailure.SecretIdNotFound", "AuthFailure.TokenFailure", "UnauthorizedOperation", "UnauthorizedOperation.CamNoAuth"},
		vpc.InProgress: {"OperationDenied.MutexTaskRunning", "UnsupportedOperation.MutexOperationTaskRunning", "InternalError.RouteTableNotEmpty"},
		vpc.Transient: {
			"InternalError", "InternalError.Db", "FailedOperation.Db", "FailedOperation.VpcCommon", "InternalError.VpcCommon", "InternalError.ModuleError",
			"ClientError.NetworkError", "ClientError.ParseJsonError", "ClientError.HttpStatusCodeError", "", "SomethingNew",
		},
	}
	for class, codes := range tests {
		for _, code := range codes {
			if got := classOf(code); got != class {
				t.Errorf("%q is %v, want %v", code, got, class)
			}
		}
	}
}
