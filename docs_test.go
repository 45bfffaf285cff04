package vpcroute_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documents returns the paths of what people read.
func documents(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "CONTRIBUTING.md"}
	err := filepath.WalkDir("docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// A block is what stands between two fences of a document.
type block struct{ language, text string }

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

func blocks(text string) []block {
	var found []block
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		found = append(found, block{m[1], m[2]})
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocumentsNameWhatExists follows every link, make target, package and path
// that the documents name.
func TestDocumentsNameWhatExists(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:\s]+)(#[^)]*)?\)`)
	target := regexp.MustCompile("`(?:[A-Z]+=\\S+ )?make ([a-z-]+)")
	path := regexp.MustCompile("`((?:cmd|pkg|test|docs|tools|manifests|bench|api)/[a-z0-9/._-]+)`")
	for _, file := range documents(t) {
		text := read(t, file)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s: a link leads nowhere: %v", file, err)
			}
		}
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !isTarget(t, m[1]) {
				t.Errorf("%s: there is no make %s", file, m[1])
			}
		}
		for _, m := range path.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
}

func isTarget(t *testing.T, name string) bool {
	return regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `:`).MatchString(read(t, "Makefile"))
}

func TestEveryTargetIsExplained(t *testing.T) {
	phony := regexp.MustCompile(`(?m)^\.PHONY: (\S+)\n([a-z-]+):(.*)$`)
	makefile := read(t, "Makefile")
	matches := phony.FindAllStringSubmatch(makefile, -1)
	if n := strings.Count(makefile, ".PHONY:"); n != len(matches) {
		t.Errorf("%d of %d targets have .PHONY, name and explanation on two lines", len(matches), n)
	}
	for _, m := range matches {
		if m[1] != m[2] || !strings.Contains(m[3], "## ") {
			t.Errorf("make %s: want its explanation after ##, for make help", m[2])
		}
	}
}

func TestJSONInDocumentsIsJSON(t *testing.T) {
	for _, file := range documents(t) {
		for _, b := range blocks(read(t, file)) {
			if b.language == "json" && !json.Valid([]byte(b.text)) {
				t.Errorf("%s: not JSON:\n%s", file, b.text)
			}
		}
	}
}

// TestCommandsInDocumentsExist checks each command of a block marked sh: make's
// targets, our own programs with their verbs and flags, packages for go.
func TestCommandsInDocumentsExist(t *testing.T) {
	for _, file := range documents(t) {
		for _, b := range blocks(read(t, file)) {
			if b.language != "sh" {
				continue
			}
			for line := range strings.SplitSeq(strings.ReplaceAll(b.text, "\\\n", " "), "\n") {
				words := strings.Fields(line)
				for len(words) > 0 && (strings.Contains(words[0], "=") || words[0] == "sudo") {
					words = words[1:]
				}
				if len(words) == 0 || words[0] == "#" {
					continue
				}
				if err := checkCommand(t, words); err != nil {
					t.Errorf("%s: %s: %v", file, strings.TrimSpace(line), err)
				}
			}
		}
	}
}

// foreign are programs that the documents may call and this test takes as known.
var foreign = []string{"cat", "cd", "git", "ip", "nft", "kubectl", "crictl", "journalctl", "helm", "docker", "curl"}

func checkCommand(t *testing.T, words []string) error {
	switch name := words[0]; {
	case name == "make":
		for _, word := range words[1:] {
			if !strings.Contains(word, "=") && !isTarget(t, word) {
				return fmt.Errorf("there is no make %s", word)
			}
		}
	case name == "go":
		for _, word := range words[1:] {
			if strings.HasPrefix(word, "./") {
				if _, err := os.Stat(strings.TrimSuffix(word, "/...")); err != nil {
					return err
				}
			}
		}
	case strings.HasPrefix(name, "bin/"), isOurs(name):
		return checkOurs(t, words)
	case !slices.Contains(foreign, name):
		return fmt.Errorf("this test does not know %s", name)
	}
	return nil
}

func isOurs(name string) bool {
	_, err := os.Stat(filepath.Join("cmd", name))
	return err == nil
}

// checkOurs asks the program itself which flags it has.
func checkOurs(t *testing.T, words []string) error {
	name := strings.TrimPrefix(words[0], "bin/")
	if name == "vpcroute" {
		name = "cni"
	}
	if !isOurs(name) {
		return fmt.Errorf("there is no cmd/%s", name)
	}
	args := []string{"run", "./cmd/" + name}
	for _, word := range words[1:] {
		if strings.HasPrefix(word, "-") {
			break
		}
		args = append(args, word)
	}
	help, err := exec.Command("go", append(args, "--help")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, help)
	}
	for _, word := range words[1:] {
		flag, _, _ := strings.Cut(word, "=")
		if strings.HasPrefix(flag, "-") && !regexp.MustCompile(`(?m)(^|\s)`+regexp.QuoteMeta(flag)+`([ ,=]|$)`).Match(help) {
			return fmt.Errorf("%s has no %s", name, flag)
		}
	}
	return nil
}

// TestOperationsExplainEverything wants a row for every state, reason, kind of
// Event and metric that the programs have, and no row for what they have not.
func TestOperationsExplainEverything(t *testing.T) {
	text := read(t, "docs/operations.md")
	explained := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(text, -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[1], -1) {
			explained[name[1]] = true
		}
	}
	// Reasons of a stage on the way make no Event: the state's row tells of them.
	stages := []string{"ResolvingNextHop", "CreatingRoute", "AwaitingProof", "RouteReady", "NodeExcluded", "NodeGone"}
	known := map[string]bool{}
	for _, source := range []struct{ file, pattern, prefix string }{
		{"api/v1alpha1/vpcroute.go", `State = "(\w+)"`, ""},
		{"pkg/routes/status.go", `Reason = "(\w+)"`, ""},
		{"pkg/routes/status.go", `EventKind = "(\w+)"`, ""},
		{"cmd/route-controller/monitor.go", `Name: +"vpcroute_(\w+)"`, "vpcroute_"},
		{"cmd/route-controller/monitor.go", `figure\("(\w+)"`, "vpcroute_"},
		{"cmd/node-agent/metrics.go", `Name: "vpcroute_(\w+)"`, "vpcroute_"},
		{"cmd/node-agent/metrics.go", `NewDesc\("vpcroute_(\w+)"`, "vpcroute_"},
	} {
		names := regexp.MustCompile(source.pattern).FindAllStringSubmatch(read(t, source.file), -1)
		if len(names) == 0 {
			t.Errorf("%s: nothing looks like %s", source.file, source.pattern)
		}
		for _, name := range names {
			known[source.prefix+name[1]] = true
		}
	}
	for name := range known {
		if !explained[name] && !slices.Contains(stages, name) {
			t.Errorf("docs/operations.md does not explain %s", name)
		}
	}
	for name := range explained {
		if !known[name] {
			t.Errorf("docs/operations.md explains %s, which there is not", name)
		}
	}
}
