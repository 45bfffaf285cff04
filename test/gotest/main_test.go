package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const (
		pass = `{"Action":"output","Package":"p","Test":"TestA","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
`
		fail = `{"Action":"output","Package":"p","Test":"TestB","Output":"b.go:1: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
`
		skip = `{"Action":"output","Package":"p","Test":"TestC","Output":"c.go:1: no ip\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
`
		ok = `{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
`
		failed = `{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}
{"Action":"fail","Package":"p"}
`
		none = `{"Action":"output","Package":"p","Output":"?   \tp\t[no test files]\n"}
{"Action":"skip","Package":"p"}
`
		crash = `{"Action":"output","Package":"p","Test":"TestD","Output":"panic: boom\n"}
` + failed
		build = `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: undefined: x\n"}
`
	)
	for _, tc := range []struct {
		name       string
		events     string
		want       string
		ok, strict bool
	}{
		{"all pass", pass + ok, "ok  \tp\t0.1s\n1 passed, 0 failed, 0 skipped\n", true, true},
		{"one fails", pass + fail + failed, "b.go:1: wrong\nFAIL\tp\t0.1s\n1 passed, 1 failed, 0 skipped\n", false, false},
		{
			"one is skipped", pass + skip + ok,
			"ok  \tp\t0.1s\nskipped: p TestC\nc.go:1: no ip\n\n1 passed, 0 failed, 1 skipped\n", true, false,
		},
		{"no test ran", ok, "ok  \tp\t0.1s\nran no test: p\n0 passed, 0 failed, 0 skipped\n", true, false},
		{"no test files", none, "?   \tp\t[no test files]\n0 passed, 0 failed, 0 skipped\n", true, true},
		{"a test crashes", crash, "panic: boom\nFAIL\tp\t0.1s\n0 passed, 0 failed, 0 skipped\n", true, true},
		{"does not build", build, "p.go:1: undefined: x\n0 passed, 0 failed, 0 skipped\n", true, true},
		{"a line that is no event", "hello\n" + pass + ok, "hello\nok  \tp\t0.1s\n1 passed, 0 failed, 0 skipped\n", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for strict, want := range map[bool]bool{false: tc.ok, true: tc.strict} {
				var out strings.Builder
				r := newReport(&out)
				if err := r.read(strings.NewReader(tc.events)); err != nil {
					t.Fatal(err)
				}
				if got := r.close(strict); got != want {
					t.Errorf("strict %v: success is %v, want %v", strict, got, want)
				}
				got := strings.TrimSuffix(out.String(), "VPCROUTE_TEST_STRICT is set: a test that does not run is a failure\n")
				if got != tc.want {
					t.Errorf("printed\n%s\nwant\n%s", got, tc.want)
				}
			}
		})
	}
}
