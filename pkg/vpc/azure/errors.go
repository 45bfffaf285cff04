package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// classes class the codes of the resource manager and the network provider. They
// are known from kubernetes/kubernetes issue 88151 (RetryableError…), recorded
// traffic in kubernetes-sigs/cloud-provider-azure (…NotFound), the vendor's page
// on common deployment errors, and memory; the HTTP status decides for the rest.
var classes = map[string]vpc.Class{
	"RetryableError":                             vpc.InProgress,
	"RetryableErrorDueToAnotherOperation":        vpc.InProgress,
	"AnotherOperationInProgress":                 vpc.InProgress,
	"PreconditionFailed":                         vpc.InProgress,
	"PreconditionFailedEtagMismatch":             vpc.InProgress,
	"OperationPreempted":                         vpc.InProgress,
	"Canceled":                                   vpc.InProgress,
	"CanceledAndSupersededDueToAnotherOperation": vpc.InProgress,
	"ResourceNotFound":                           vpc.NotFound,
	"ResourceGroupNotFound":                      vpc.NotFound,
	"ParentResourceNotFound":                     vpc.NotFound,
	"NotFound":                                   vpc.NotFound,
	"AuthorizationFailed":                        vpc.Denied,
	"LinkedAuthorizationFailed":                  vpc.Denied,
	"RequestDisallowedByPolicy":                  vpc.Denied,
	"ScopeLocked":                                vpc.Denied,
	"SubscriptionNotFound":                       vpc.Denied,
	"TooManyRequests":                            vpc.Throttled,
	"SubscriptionRequestsThrottled":              vpc.Throttled,
	"InternalServerError":                        vpc.Transient,
}

// hints say what to do about codes whose own text does not.
var hints = map[string]string{
	"ScopeLocked":               "a lock on the resource or its group forbids writing: remove it",
	"RequestDisallowedByPolicy": "a policy of the subscription forbids this: exempt the route tables from it",
	"SubscriptionNotFound":      "correct the subscription id, or give the controller's identity a role in it",
}

// classOf returns the class of a code that came with an HTTP status.
func classOf(code string, status int) vpc.Class {
	if class, ok := classes[code]; ok {
		return class
	}
	switch {
	case status == http.StatusTooManyRequests:
		return vpc.Throttled
	case status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusProxyAuthRequired:
		return vpc.Denied
	case status >= 500, status == http.StatusRequestTimeout:
		return vpc.Transient
	case strings.Contains(code, "Limit"), strings.Contains(code, "Quota"), strings.Contains(code, "MaxNumber"):
		return vpc.Quota
	case status == http.StatusNotFound, status == http.StatusGone:
		return vpc.NotFound
	case status == http.StatusConflict, status == http.StatusPreconditionFailed:
		return vpc.InProgress
	case status >= 400:
		return vpc.Invalid
	default: // an operation that failed, asked about with success
		return vpc.Transient
	}
}

// An apiError is an answer of the API, or of something in front of it, in a line.
type apiError struct {
	status        int
	code, message string
	retryAfter    time.Duration
	linked        []string // codes in the error's details
}

func (e *apiError) Error() string {
	switch {
	case e.code == "":
		return fmt.Sprintf("HTTP %d %s, and not the API's JSON: %q", e.status, http.StatusText(e.status), e.message)
	case hints[e.code] != "":
		return fmt.Sprintf("%s: %s (%s)", e.code, e.message, hints[e.code])
	default:
		return fmt.Sprintf("%s: %s", e.code, e.message)
	}
}

func (e *apiError) class() vpc.Class {
	for _, code := range append([]string{e.code}, e.linked...) {
		if class, ok := classes[code]; ok {
			return class
		}
	}
	return classOf(e.code, e.status)
}

// readAPIError takes from the SDK's error what people need; its own text is the
// whole answer, over many lines.
func readAPIError(sdk *azcore.ResponseError) *apiError {
	e := &apiError{status: sdk.StatusCode, code: sdk.ErrorCode}
	if sdk.RawResponse == nil {
		return e
	}
	e.retryAfter = retryAfter(sdk.RawResponse.Header)
	body, err := runtime.Payload(sdk.RawResponse)
	if err != nil {
		return e
	}
	var answer struct {
		Error struct {
			Code, Message string
			Details       []struct{ Code, Message string }
		}
	}
	if json.Unmarshal(body, &answer) != nil || answer.Error.Code == "" {
		e.message = cut(strings.TrimSpace(string(body)), 80)
		return e
	}
	e.code, e.message = answer.Error.Code, cut(answer.Error.Message, 500)
	for _, d := range answer.Error.Details {
		e.linked = append(e.linked, d.Code)
		if e.message == "" {
			e.message = cut(d.Message, 500)
		}
	}
	return e
}

// retryAfter reads the wait in seconds, in milliseconds or until a date.
func retryAfter(h http.Header) time.Duration {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if n, err := strconv.Atoi(h.Get(name)); err == nil && n > 0 {
			return time.Duration(n) * time.Millisecond
		}
	}
	text := h.Get("Retry-After")
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// classify gives what the SDK returned a class and the name of what was done.
func classify(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &vpc.Error{Op: op, Err: err}
	var classed *vpc.Error
	var sdk *azcore.ResponseError
	switch {
	case errors.Is(err, context.Canceled):
		e.Err = context.Canceled
	case errors.As(err, &classed):
		e.Class, e.RetryAfter = classed.Class, classed.RetryAfter
		e.Err = classed
	case errors.Is(err, context.DeadlineExceeded):
		e.Err = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
	case errors.As(err, &sdk):
		api := readAPIError(sdk)
		e.Class, e.RetryAfter, e.Err = api.class(), api.retryAfter, api
	}
	return e
}

// codeOf returns the API's error code in an error's chain, or "".
func codeOf(err error) string {
	var api *apiError
	if errors.As(err, &api) {
		return api.code
	}
	return ""
}

// isStale is true when a write was refused because the resource changed since it
// was read.
func isStale(err error) bool {
	var api *apiError
	return errors.As(err, &api) && api.status == http.StatusPreconditionFailed
}

func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return text[:n] + "…"
}
