package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// codes class the API's error codes. What the vendor's page on error codes lists
// for every action is here, and what it lists for those that are used.
var codes = map[string]vpc.Class{
	"RouteAlreadyExists": vpc.Exists,

	"RouteLimitExceeded": vpc.Quota,

	"IncorrectState":         vpc.InProgress,
	"IncorrectInstanceState": vpc.InProgress,
	"DependencyViolation":    vpc.InProgress,

	"AuthFailure":                 vpc.Denied,
	"UnauthorizedOperation":       vpc.Denied,
	"InvalidClientTokenId":        vpc.Denied,
	"SignatureDoesNotMatch":       vpc.Denied,
	"IncompleteSignature":         vpc.Denied,
	"MissingAuthenticationToken":  vpc.Denied,
	"UnrecognizedClientException": vpc.Denied,
	"RequestExpired":              vpc.Denied,
	"ExpiredToken":                vpc.Denied,
	"ExpiredTokenException":       vpc.Denied,
	"OptInRequired":               vpc.Denied,
	"PendingVerification":         vpc.Denied,
	"Blocked":                     vpc.Denied,
	"AccessDenied":                vpc.Denied,
	"AccessDeniedException":       vpc.Denied,

	"InvalidParameter":            vpc.Invalid,
	"InvalidParameterValue":       vpc.Invalid,
	"InvalidParameterCombination": vpc.Invalid,
	"MissingParameter":            vpc.Invalid,
	"UnknownParameter":            vpc.Invalid,
	"ValidationError":             vpc.Invalid,
	"InvalidAction":               vpc.Invalid,
	"InvalidInstanceID":           vpc.Invalid,
	"UnsupportedOperation":        vpc.Invalid,
	"Unsupported":                 vpc.Invalid,
	"OperationNotPermitted":       vpc.Invalid,

	// In the SDK's list of rate limits, yet a failure on the way.
	"TransactionInProgressException": vpc.InProgress,
}

// hints say what to do about codes whose own text does not.
var hints = map[string]string{
	"RequestExpired":     "this machine's clock is more than 5 minutes off",
	"OptInRequired":      "enable the region for the account",
	"RouteLimitExceeded": "ask for a higher quota of routes per route table, and say so with the routes per table",
}

// classOf returns the class of an error code.
func classOf(code string) vpc.Class {
	code = strings.TrimPrefix(strings.TrimPrefix(code, "Client."), "Server.")
	if class, ok := codes[code]; ok {
		return class
	}
	_, throttled := retry.DefaultThrottleErrorCodes[code]
	switch {
	case throttled:
		return vpc.Throttled
	case strings.HasSuffix(code, ".NotFound"):
		return vpc.NotFound
	case strings.HasSuffix(code, ".Malformed"):
		return vpc.Invalid
	case strings.HasSuffix(code, "LimitExceeded"):
		return vpc.Quota
	}
	return vpc.Transient
}

// An apiError is the API's error in one line.
type apiError struct {
	code, message, request string
	err                    error // the SDK's
}

func (e *apiError) Error() string {
	s := e.code
	if e.message != "" {
		s += ": " + e.message
	}
	if e.request != "" {
		s += " (request " + e.request + ")"
	}
	return s
}

func (e *apiError) Unwrap() error { return e.err }

// shorten leaves out the encoded part of a refusal, which is a thousand
// characters that only another call can read.
func shorten(message string) string {
	message, _, _ = strings.Cut(message, "Encoded authorization failure message")
	return strings.TrimSuffix(strings.TrimSpace(message), ".")
}

// classify gives what the SDK returned a class and the name of the call.
func classify(action string, err error) error {
	if err == nil {
		return nil
	}
	e := &vpc.Error{Op: action, Err: err}
	var classed *vpc.Error
	var page *pageError
	var api smithy.APIError
	switch {
	case errors.Is(err, context.Canceled):
		e.Err = context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		e.Err = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
	case errors.As(err, &classed):
		e.Class, e.RetryAfter, e.Err = classed.Class, classed.RetryAfter, classed
	case errors.As(err, &page):
		e.Class, e.RetryAfter, e.Err = page.class(), page.retryAfter, page
	case errors.As(err, &api):
		e.Class = classOf(api.ErrorCode())
		e.Err = describeAPI(action, api, err)
	}
	return e
}

func describeAPI(action string, api smithy.APIError, err error) error {
	short := &apiError{code: api.ErrorCode(), message: shorten(api.ErrorMessage()), err: err}
	var response *awshttp.ResponseError
	if errors.As(err, &response) {
		short.request = response.ServiceRequestID()
	}
	hint := hints[short.code]
	if short.code == "UnauthorizedOperation" {
		hint = "allow ec2:" + action + " in the IAM policy"
	}
	if hint == "" {
		return short
	}
	return fmt.Errorf("%w (%s)", short, hint)
}

// codeOf returns the API's error code in an error's chain, or "".
func codeOf(err error) string {
	var api *apiError
	if errors.As(err, &api) {
		return api.code
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
	return fmt.Sprintf("HTTP %d %s, and not the API's XML: %q", e.status, http.StatusText(e.status), e.start)
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
