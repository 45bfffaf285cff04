package gcp

import (
	"fmt"
	"net/http"

	"github.com/vpcroute/vpcroute/test/cloud"
)

// An operation is one change under way or done.
type operation struct {
	project, name, kind, target string
	done                        chan struct{}
	failure                     *problem
	warnings                    []Warning
}

func (o *operation) isDone() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// resource is the operation as the API spells it.
func (o *operation) resource() map[string]any {
	r := map[string]any{
		"kind": "compute#operation", "name": o.name, "operationType": o.kind, "status": "RUNNING", "progress": 0,
		"targetLink": fullURL("projects/" + o.project + "/global/routes/" + o.target),
		"selfLink":   fullURL("projects/" + o.project + "/global/operations/" + o.name),
	}
	if !o.isDone() {
		return r
	}
	r["status"], r["progress"] = "DONE", 100
	if o.failure != nil {
		fail(r, o.failure.reason, o.failure.message)
	}
	if len(o.warnings) > 0 {
		r["warnings"] = o.warnings
	}
	return r
}

func fail(resource map[string]any, code, message string) {
	resource["error"] = map[string]any{"errors": []any{map[string]any{"code": code, "message": message}}}
	resource["httpErrorStatusCode"], resource["httpErrorMessage"] = http.StatusForbidden, "FORBIDDEN"
}

// FailedOperation is the answer of an operation that failed at once: HTTP status
// 200, DONE, and the error inside.
func FailedOperation(code, message string) *cloud.Answer {
	r := map[string]any{"kind": "compute#operation", "name": "operation-failed", "status": "DONE", "progress": 100}
	fail(r, code, message)
	return &cloud.Answer{Body: r}
}

// start begins an operation on a route, which runs f at its end.
func (e *Emulator) start(r request, kind, target string, f func() (*problem, []Warning)) any {
	o := &operation{project: r.project, name: fmt.Sprintf("operation-%d", e.number()), kind: kind, target: target, done: make(chan struct{})}
	e.operations[r.project+"/"+o.name] = o
	key := r.project + "/" + target
	e.busy[key] = true
	finish := func() {
		o.failure, o.warnings = f()
		delete(e.busy, key)
		close(o.done)
	}
	if e.options.OperationTime <= 0 {
		finish()
		return o.resource()
	}
	e.Clock.AfterFunc(e.options.OperationTime, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		finish()
	})
	return o.resource()
}

// Idle is true when no operation is under way.
func (e *Emulator) Idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.busy) == 0
}

// checkConcurrent refuses more operations at once than are allowed.
func (e *Emulator) checkConcurrent() *problem {
	if e.options.Concurrent == 0 || len(e.busy) < e.options.Concurrent {
		return nil
	}
	p := problemf("rateLimitExceeded", "Rate Limit Exceeded")
	p.details = []any{map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED", "domain": "compute.googleapis.com"}}
	return p
}

func (e *Emulator) findOperation(r request) (*operation, *problem) {
	if p := e.need(r, "compute.globalOperations.get"); p != nil {
		return nil, p
	}
	o := e.operations[r.project+"/"+r.name]
	if o == nil {
		return nil, problemf("notFound", "The resource 'projects/%s/global/operations/%s' was not found", r.project, r.name)
	}
	return o, nil
}

func (e *Emulator) getOperation(r request) (any, *problem) {
	o, p := e.findOperation(r)
	if p != nil {
		return nil, p
	}
	return o.resource(), nil
}

// waitForOperation blocks, without the emulator's lock, until the operation is
// done or the time is up.
func (e *Emulator) waitForOperation(r request) (any, *problem) {
	o, p := e.findOperation(r)
	if p != nil {
		return nil, p
	}
	if !e.options.WaitReturnsEarly {
		up := make(chan struct{})
		e.Clock.AfterFunc(e.options.WaitLimit, func() { close(up) })
		e.mu.Unlock()
		select {
		case <-o.done:
		case <-up:
		case <-r.Context().Done():
		}
		e.mu.Lock()
	}
	return o.resource(), nil
}
