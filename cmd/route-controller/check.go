package main

import (
	"context"
	"fmt"
	"io"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// exitFindings is the exit code of a check that found errors.
const exitFindings exitCode = 4

// check prints what would keep routes from working, each with its fix.
func check(ctx context.Context, s settings, out io.Writer) error {
	findings := s.config.Table.Preflight(ctx)
	if limits, err := s.config.Table.Limits(ctx); err != nil {
		findings = append(findings, vpc.Finding{Severity: vpc.SeverityError, Object: "route tables", Message: err.Error(), Fix: "see that the controller may read the route tables"})
	} else {
		for _, t := range limits.Tables {
			findings = append(findings, tableFinding(t))
		}
	}
	failed := false
	for _, f := range findings {
		failed = failed || f.Severity == vpc.SeverityError
	}
	if err := printFindings(out, findings, s.json); err != nil {
		return err
	}
	if failed {
		return exitFindings
	}
	return nil
}

func tableFinding(t vpc.TableLimits) vpc.Finding {
	f := vpc.Finding{Severity: vpc.SeverityInfo, Object: "route table " + t.Table, Message: fmt.Sprintf("%d entries", t.Used)}
	if t.Max > 0 {
		f.Message = fmt.Sprintf("%d of at most %d entries", t.Used, t.Max)
	}
	if t.Max > 0 && t.Used*100 >= t.Max*80 {
		f.Severity, f.Fix = vpc.SeverityWarning, "ask the cloud for a higher quota before it is full"
	}
	return f
}

func printFindings(out io.Writer, findings []vpc.Finding, asJSON bool) error {
	if asJSON {
		return printJSON(out, findings)
	}
	for _, f := range findings {
		fix := ""
		if f.Fix != "" {
			fix = "; " + f.Fix
		}
		if _, err := fmt.Fprintf(out, "%-7s  %s: %s%s\n", f.Severity, f.Object, f.Message, fix); err != nil {
			return err
		}
	}
	return nil
}
