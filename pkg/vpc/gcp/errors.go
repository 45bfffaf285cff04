package gcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/auth"
	compute "google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// reasons class the API's errors. A call answers with a reason in camel case,
// an operation that failed with a code in upper case: the same words mostly, so
// both are looked up in lower case and without underscores. The HTTP status is
// no guide: 403 is a rate, a quota or a missing permission.
var reasons = map[string]vpc.Class{
	"alreadyexists":                  vpc.Exists,
	"resourcealreadyexists":          vpc.Exists,
	"notfound":                       vpc.NotFound,
	"resourcenotfound":               vpc.NotFound,
	"ratelimitexceeded":              vpc.Throttled,
	"userratelimitexceeded":          vpc.Throttled,
	"dailylimitexceeded":             vpc.Throttled,
	"quotaexceeded":                  vpc.Quota,
	"limitexceeded":                  vpc.Quota,
	"resourcenotready":               vpc.InProgress,
	"resourceinuse":                  vpc.InProgress,
	"resourceinusebyanotherresource": vpc.InProgress,
	"resourceoperationrateexceeded":  vpc.InProgress,
	"conditionnotmet":                vpc.InProgress,
	"invalid":                        vpc.Invalid,
	"invalidparameter":               vpc.Invalid,
	"invalidfieldvalue":              vpc.Invalid,
	"invalidusage":                   vpc.Invalid,
	"invalidresourceusage":           vpc.Invalid,
	"badrequest":                     vpc.Invalid,
	"parseerror":                     vpc.Invalid,
	"required":                       vpc.Invalid,
	"autherror":                      vpc.Denied,
	"forbidden":                      vpc.Denied,
	"insufficientpermissions":        vpc.Denied,
	"accessnotconfigured":            vpc.Denied,
	"permissionserror":               vpc.Denied,
	"backenderror":                   vpc.Transient,
	"internalerror":                  vpc.Transient,
}

// An answer is what the API said instead of doing what was asked.
type answer struct {
	status  int // HTTP, 0 when an operation failed
	reason  string
	message string
}

func (a *answer) Error() string {
	if a.status == 0 {
		return fmt.Sprintf("the operation failed with %s: %s", a.reason, a.message)
	}
	return fmt.Sprintf("HTTP %d %s: %s", a.status, a.reason, a.message)
}

// classOf returns the class of a reason, or of the HTTP status when the reason
// is not known.
func classOf(reason string, status int) vpc.Class {
	if class, known := reasons[strings.ToLower(strings.ReplaceAll(reason, "_", ""))]; known {
		return class
	}
	return classOfStatus(status)
}

func classOfStatus(status int) vpc.Class {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return vpc.Denied
	case http.StatusTooManyRequests:
		return vpc.Throttled
	case http.StatusConflict, http.StatusPreconditionFailed:
		return vpc.InProgress
	default:
		return vpc.Transient
	}
}

// refusal returns the API's own answer in an error's chain, or nil.
func refusal(err error) *answer {
	var a *answer
	errors.As(err, &a)
	return a
}

// classify gives what the SDK returned a class and the name of the call.
func classify(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &vpc.Error{Op: op, Err: err}
	var classed *vpc.Error
	var page *pageError
	var api *googleapi.Error
	switch {
	case errors.Is(err, context.Canceled):
		e.Err = context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		e.Err = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
	case errors.As(err, &classed):
		e.Class, e.RetryAfter, e.Err = classed.Class, classed.RetryAfter, classed
	case errors.As(err, &page):
		e.Class, e.RetryAfter, e.Err = classOfStatus(page.status), page.retryAfter, page
	case errors.As(err, &api):
		a := answerOf(api)
		e.Class, e.Err = classOf(a.reason, a.status), a
		if e.Class == vpc.Throttled {
			e.RetryAfter = refill(api, time.Now())
		}
	}
	return e
}

// answerOf keeps of the SDK's error what people read, without the body.
func answerOf(e *googleapi.Error) *answer {
	a := &answer{status: e.Code, message: e.Message}
	if len(e.Errors) > 0 {
		a.reason = e.Errors[0].Reason
	}
	return a
}

// refill is how long to wait after a refusal for the rate: as long as the API
// says, else until the next full minute, when the quota is filled in
// (docs.cloud.google.com/compute/api-quota). The limit on operations under way
// has no such time.
func refill(e *googleapi.Error, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(e.Header.Get("Retry-After")); err == nil && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	if concurrent(e) {
		return 0
	}
	return now.Truncate(time.Minute).Add(time.Minute).Sub(now)
}

// concurrent is true when too many operations were under way at once
// (docs.cloud.google.com/compute/operations-quota).
func concurrent(e *googleapi.Error) bool {
	for _, d := range e.Details {
		if fields, ok := d.(map[string]any); ok && fields["reason"] == "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED" {
			return true
		}
	}
	return false
}

// operationError is the error that an operation ended with, or nil. The SDK
// returns none for an operation that is done and has failed.
func operationError(op *compute.Operation) error {
	if op.Error == nil || len(op.Error.Errors) == 0 {
		return nil
	}
	first := op.Error.Errors[0]
	a := &answer{reason: first.Code, message: first.Message}
	return &vpc.Error{Class: classOf(first.Code, int(op.HttpErrorStatusCode)), Err: a}
}

// tokenError classes a failure to get a token: a refusal and a key that cannot
// sign are Denied, a failure to ask is not.
func tokenError(err error) error {
	e := &vpc.Error{Class: vpc.Denied, Op: "get an access token", Err: err}
	var refused *auth.Error
	var lost *url.Error
	switch {
	case errors.As(err, &refused) && refused.Response != nil:
		e.Err = fmt.Errorf("HTTP %d from the token service: give the controller working credentials", refused.Response.StatusCode)
		if refused.Temporary() {
			e.Class = vpc.Transient
		}
	case errors.As(err, &lost), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Class = vpc.Transient
	}
	return e
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
