package azure_test

import (
	"net/http"
	"testing"
)

// R073: a controller that asks for limits and routes in every pass makes one
// call for both; and what was read before a write ended is not used after it,
// however slow the answer was.
func TestOneReadingForLimitsAndList(t *testing.T) {
	w := newWorld()
	table := w.table(t)
	limits := func() {
		t.Helper()
		if _, err := table.Limits(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		t.Helper()
		routes, err := table.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(routes)
	}
	for range 12 {
		limits()
		if n := count(); n != 0 {
			t.Fatalf("%d routes", n)
		}
	}
	if n := len(w.Calls()); n != 12 {
		t.Errorf("%d calls in 12 passes", n)
	}
	limits()
	apply(t, table, w.create(1))
	if n := count(); n != 1 {
		t.Errorf("%d routes after a create, want 1", n)
	}
	// Limits gets its answer only after an Apply came and went.
	slow := &interrupted{next: w.config.Endpoint.Transport}
	w.config.Endpoint.Transport = slow
	table = w.table(t)
	slow.then = func() { apply(t, table, w.create(2)) }
	limits()
	if n := count(); n != 2 {
		t.Errorf("%d routes after a slow answer, want 2", n)
	}
}

// An interrupted transport does something once an answer is there, and passes
// the answer on then.
type interrupted struct {
	next http.RoundTripper
	then func()
}

func (i *interrupted) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := i.next.RoundTrip(r)
	if then := i.then; then != nil {
		i.then = nil
		then()
	}
	return response, err
}
