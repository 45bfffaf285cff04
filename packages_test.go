package vpcroute_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/vpcroute/vpcroute"

// A goPackage is what "go list -json" tells about a package.
type goPackage struct {
	ImportPath, Name, Dir string
	Standard              bool
	Module                *struct {
		Path, Version, Dir string
		Main               bool
	}
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

// own says whether the package is one of this module.
func (p *goPackage) own() bool { return p.Module != nil && p.Module.Main }

// short is an own package's path within the module, as the tables spell it:
// "./cmd/cni".
func (p *goPackage) short() string { return short(p.ImportPath) }

func short(path string) string {
	if path == module {
		return "."
	}
	if rest, ok := strings.CutPrefix(path, module+"/"); ok {
		return "./" + rest
	}
	return path
}

// loadPackages lists every package of the module and all that they need, tests
// included.
var loadPackages = sync.OnceValues(func() (map[string]*goPackage, error) {
	cmd := exec.Command("go", "list", "-deps", "-test", "-json=ImportPath,Name,Dir,Standard,Module,"+
		"GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	list := map[string]*goPackage{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		p := &goPackage{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the answer of go list: %w", err)
		}
		// Left out: a package compiled a second time for a test, and a test's main.
		if strings.Contains(p.ImportPath, " ") || strings.HasSuffix(p.ImportPath, ".test") {
			continue
		}
		list[p.ImportPath] = p
	}
})

func packages(t *testing.T) map[string]*goPackage {
	t.Helper()
	list, err := loadPackages()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// ownPackages returns the module's packages that hold more than tests, sorted.
func ownPackages(t *testing.T) []*goPackage {
	t.Helper()
	var own []*goPackage
	for _, p := range packages(t) {
		if p.own() && len(p.GoFiles) > 0 {
			own = append(own, p)
		}
	}
	slices.SortFunc(own, func(a, b *goPackage) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	return own
}

// matches says whether an import path, own ones in short form, is one that the
// pattern means: a path itself, or with "/..." at its end what is below it too.
func matches(pattern, path string) bool {
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == below || strings.HasPrefix(path, below+"/")
	}
	return path == pattern
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}
