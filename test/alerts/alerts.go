// Package alerts evaluates alert rules as Prometheus does, on made-up series
// and made-up time. It is for tests only and knows nothing of the product but
// the rules it is given.
package alerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// Step is the time between two samples and between two evaluations.
const Step = time.Minute

// lookback is how long Prometheus takes a sample for current, by default.
const lookback = 5 * time.Minute

// Rules are the alert rules of one file.
type Rules struct {
	// Names are those of the alerts, in the order of the file.
	Names []string

	groups *rulefmt.RuleGroups
	parser parser.Parser
}

// Read reads a file of rules and fails on anything that Prometheus would
// refuse.
func Read(file string) (*Rules, error) {
	r := &Rules{parser: parser.NewParser(parser.Options{})}
	groups, errs := rulefmt.ParseFile(file, false, model.UTF8Validation, r.parser, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	r.groups = groups
	for rule := range r.all {
		r.Names = append(r.Names, rule.Alert)
	}
	return r, nil
}

// all goes through the rules in the order of the file.
func (r *Rules) all(yield func(rulefmt.Rule) bool) {
	for _, g := range r.groups.Groups {
		for _, rule := range g.Rules {
			if !yield(rule) {
				return
			}
		}
	}
}

// A Firing is an alert that fires.
type Firing struct {
	// Name is the alert's.
	Name string
	// Labels are its labels but the name, and Annotations what people are told.
	Labels, Annotations map[string]string
}

// Firing returns the alerts that fire once series have gone on for a while. The
// series are in the notation of Prometheus' own rule tests, a sample every
// Step: "up{job="x"} 1+0x10".
func (r *Rules) Firing(t testing.TB, series string, after time.Duration) []Firing {
	t.Helper()
	storage := promqltest.LoadedStorage(t, fmt.Sprintf("load %s\n%s", model.Duration(Step), series))
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, lookback, 10_000), storage)
	var firing []Firing
	for rule := range r.all {
		found, err := r.evaluate(t.Context(), rule, query, after)
		if err != nil {
			t.Fatalf("alert %s: %v", rule.Alert, err)
		}
		firing = append(firing, found...)
	}
	return firing
}

func (r *Rules) evaluate(ctx context.Context, rule rulefmt.Rule, query rules.QueryFunc, after time.Duration) ([]Firing, error) {
	expr, err := r.parser.ParseExpr(rule.Expr)
	if err != nil {
		return nil, err
	}
	alert := rules.NewAlertingRule(rule.Alert, expr, time.Duration(rule.For), time.Duration(rule.KeepFiringFor),
		labels.FromMap(rule.Labels), labels.FromMap(rule.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	for at := time.Duration(0); at <= after; at += Step {
		if _, err := alert.Eval(ctx, 0, time.Unix(0, 0).Add(at), query, nil, 0); err != nil {
			return nil, err
		}
	}
	var firing []Firing
	for _, a := range alert.ActiveAlerts() {
		if a.State == rules.StateFiring {
			firing = append(firing, Firing{rule.Alert, without(a.Labels.Map(), labels.AlertName), a.Annotations.Map()})
		}
	}
	return firing, nil
}

func without(m map[string]string, key string) map[string]string {
	delete(m, key)
	return m
}
