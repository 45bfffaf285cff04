package tencent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	tcerr "github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/common/errors"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// conditions class the codes by the part after the dot: one condition comes
// under several families (InternalError.X, InvalidParameter.X, …).
var conditions = map[string]vpc.Class{
	// container service
	"CidrConflictWithOtherRoute":     vpc.Exists,
	"GatewayAlreadyAssociatedCidr":   vpc.Exists,
	"ResourceExistAlready":           vpc.Exists,
	"CidrOutOfRouteTable":            vpc.Invalid,
	"CidrConflictWithOtherCluster":   vpc.Invalid,
	"CidrConflictWithVpcCidr":        vpc.Invalid,
	"CidrConflictWithVpcGlobalRoute": vpc.Invalid,
	"Param":                          vpc.Invalid,
	"RouteTableNotFound":             vpc.NotFound,
	"CvmNotFound":                    vpc.NotFound,
	"QuotaMaxRtLimit":                vpc.Quota,
	"RouteTableNotEmpty":             vpc.InProgress,
	"VpcCommon":                      vpc.Transient,
	"Db":                             vpc.Transient,

	// VPC
	"Duplicate":                 vpc.Exists,
	"Ecmp":                      vpc.Exists,
	"EcmpWithUserRoute":         vpc.Exists,
	"EcmpWithCcnRoute":          vpc.Exists,
	"RecordNotExists":           vpc.NotFound,
	"NotFound":                  vpc.NotFound,
	"MutexTaskRunning":          vpc.InProgress,
	"MutexOperationTaskRunning": vpc.InProgress,

	// gateway
	"CamNoAuth":     vpc.Denied,
	"ActionLimited": vpc.Throttled, // family LimitExceeded, yet a rate and no quota
}

// families class the other codes by the part in front of the dot.
var families = map[string]vpc.Class{
	"RequestLimitExceeded":  vpc.Throttled,
	"AuthFailure":           vpc.Denied,
	"UnauthorizedOperation": vpc.Denied,
	"LimitExceeded":         vpc.Quota,
	"ResourceInsufficient":  vpc.Quota,
	"ResourceNotFound":      vpc.NotFound,
	"ResourceInUse":         vpc.InProgress,
	"InvalidParameter":      vpc.Invalid,
	"InvalidParameterValue": vpc.Invalid,
	"MissingParameter":      vpc.Invalid,
	"UnknownParameter":      vpc.Invalid,
	"UnsupportedOperation":  vpc.Invalid,
	"UnsupportedRegion":     vpc.Invalid,
	"UnsupportedProtocol":   vpc.Invalid,
	"InvalidAction":         vpc.Invalid,
	"NoSuchVersion":         vpc.Invalid,
}

// hints say what to do about codes whose own text does not.
var hints = map[string]string{
	"AuthFailure.SignatureExpire":                  "this machine's clock is more than 5 minutes off",
	"UnsupportedOperation.ConflictWithDockerRoute": "a cluster route table of the container service has this range: use mode global-route, or another range",
	"UnsupportedOperation.DisabledNotifyCcn":       "the route is published to a Cloud Connect Network: withdraw it there first",
}

// classOf returns the class of an error code.
func classOf(code string) vpc.Class {
	family, condition, _ := strings.Cut(code, ".")
	if class, ok := conditions[condition]; ok {
		return class
	}
	if strings.HasPrefix(family, "RequestLimitExceeded") {
		return vpc.Throttled
	}
	return families[family] // Transient, the zero Class, for all others
}

// classify gives what the SDK returned a class and the name of the call.
func classify(service, action string, err error) error {
	if err == nil {
		return nil
	}
	e := &vpc.Error{Op: action, Err: err}
	var classed *vpc.Error
	var page *pageError
	var api *tcerr.TencentCloudSDKError
	switch {
	case errors.Is(err, context.Canceled):
		e.Err = context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		e.Err = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
	case errors.As(err, &classed):
		e.Class, e.RetryAfter = classed.Class, classed.RetryAfter
	case errors.As(err, &page):
		e.Class, e.RetryAfter, e.Err = page.class(), page.retryAfter, page
	case errors.As(err, &api):
		e.Class = classOf(api.Code)
		if hint := hints[api.Code]; hint != "" {
			e.Err = fmt.Errorf("%w (%s)", err, hint)
		} else if strings.HasPrefix(api.Code, "UnauthorizedOperation") {
			e.Err = fmt.Errorf("%w (allow %s:%s in the CAM policy)", err, service, action)
		}
	}
	return e
}

// codeOf returns the API's error code in an error's chain, or "".
func codeOf(err error) string {
	var api *tcerr.TencentCloudSDKError
	if errors.As(err, &api) {
		return api.Code
	}
	return ""
}

// A pageError is an answer that is not the API's: a proxy's page, for example.
type pageError struct {
	status     int
	retryAfter time.Duration
	start      string // of the body
}

func (e *pageError) Error() string {
	return fmt.Sprintf("HTTP %d %s, and not the API's JSON: %q", e.status, http.StatusText(e.status), e.start)
}

func (e *pageError) class() vpc.Class {
	switch e.status {
	case http.StatusTooManyRequests:
		return vpc.Throttled
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return vpc.Denied
	default:
		return vpc.Transient
	}
}
