package aws

import (
	"testing"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// The lists are those of the vendor's page on error codes for the actions that
// are used, and of the SDK for rate limits.
func TestCodesHaveClasses(t *testing.T) {
	tests := map[vpc.Class][]string{
		vpc.Exists: {"RouteAlreadyExists"},
		vpc.NotFound: {
			"InvalidRoute.NotFound", "InvalidRouteTableID.NotFound", "InvalidNetworkInterfaceID.NotFound", "InvalidInstanceID.NotFound",
			"InvalidVpcID.NotFound", "InvalidSubnetID.NotFound",
		},
		vpc.Invalid: {
			"InvalidParameterValue", "InvalidParameterCombination", "MissingParameter", "UnknownParameter", "InvalidAction", "InvalidInstanceID",
			"InvalidNetworkInterfaceID.Malformed", "InvalidRoute.Malformed", "OperationNotPermitted", "UnsupportedOperation",
		},
		vpc.Quota: {"RouteLimitExceeded", "VpcLimitExceeded"},
		vpc.Throttled: {
			"RequestLimitExceeded", "Client.RequestLimitExceeded", "Throttling", "ThrottlingException", "EC2ThrottledException", "SlowDown",
			"TooManyRequestsException", "LimitExceededException", "BandwidthLimitExceeded",
		},
		vpc.Denied: {
			"AuthFailure", "UnauthorizedOperation", "InvalidClientTokenId", "SignatureDoesNotMatch", "RequestExpired", "ExpiredToken",
			"OptInRequired", "AccessDenied", "PendingVerification", "Blocked",
		},
		vpc.InProgress: {"IncorrectState", "DependencyViolation", "TransactionInProgressException"},
		vpc.Transient:  {"InternalError", "Server.InternalError", "Unavailable", "ServiceUnavailable", "RequestTimeout", "InvalidParameterException", "", "SomethingNew"},
	}
	for class, codes := range tests {
		for _, code := range codes {
			if got := classOf(code); got != class {
				t.Errorf("%q is %v, want %v", code, got, class)
			}
		}
	}
}
