package vpcroute_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryPackageIsTested leaves out what exists for tests: its use tests it.
func TestEveryPackageIsTested(t *testing.T) {
	for _, p := range ownPackages(t) {
		if len(p.TestGoFiles)+len(p.XTestGoFiles) == 0 && !matches("./test/...", p.short()) {
			t.Errorf("%s has no tests", p.short())
		}
	}
}

// TestEveryPackageSaysWhatItIs holds every package to one opening paragraph: what
// it is, and what it must not do.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range ownPackages(t) {
		var docs []string
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				docs = append(docs, f.Doc.Text())
			}
		}
		if len(docs) != 1 {
			t.Errorf("%s has %d package comments, want one", p.short(), len(docs))
			continue
		}
		opening := "Package " + p.Name + " "
		if p.Name == "main" {
			opening = "Command "
		}
		if !strings.HasPrefix(docs[0], opening) {
			t.Errorf("%s: the package comment does not start with %q", p.short(), opening)
		}
		if !regexp.MustCompile(`\b(not|never|nothing|nobody|no)\b`).MatchString(docs[0]) {
			t.Errorf("%s: the package comment does not say what the package must not do", p.short())
		}
	}
}

// TestEveryExportedNameIsDocumented covers what the linter leaves out: fields
// and methods of what is exported from packages that others import.
func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, p := range ownPackages(t) {
		if !matchesAny([]string{"./pkg/...", "./api/..."}, p.short()) {
			continue
		}
		for _, name := range p.GoFiles {
			if strings.HasPrefix(name, "zz_generated") {
				continue
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range f.Decls {
				for _, n := range undocumented(decl) {
					t.Errorf("%s: %s has no comment", short(p.ImportPath)+"/"+filepath.Base(fset.Position(n.Pos()).String()), n.Name)
				}
			}
		}
	}
}

// undocumented returns the exported names that a declaration introduces without a
// comment. A group's comment covers its members.
func undocumented(decl ast.Decl) []*ast.Ident {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && (d.Recv == nil || exportedReceiver(d.Recv)) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		var names []*ast.Ident
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && s.Doc == nil && d.Doc == nil && s.Comment == nil {
					names = append(names, s.Name)
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.IsExported() && s.Doc == nil && d.Doc == nil && s.Comment == nil {
						names = append(names, n)
					}
				}
			}
		}
		return names
	}
	return nil
}

func exportedReceiver(recv *ast.FieldList) bool {
	expr := recv.List[0].Type
	if star, ok := expr.(*ast.StarExpr); ok {
		expr = star.X
	}
	if index, ok := expr.(*ast.IndexExpr); ok {
		expr = index.X
	}
	name, ok := expr.(*ast.Ident)
	return ok && name.IsExported()
}

// TestNamesSayWhatIsInside keeps out names under which anything can be put.
func TestNamesSayWhatIsInside(t *testing.T) {
	empty := regexp.MustCompile(`^(utils?|common|helpers?|managers?|base|misc|shared|lib)$`)
	for _, p := range ownPackages(t) {
		if empty.MatchString(p.Name) {
			t.Errorf("package %s: the name says nothing about what it is for", p.short())
		}
		for _, file := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			for part := range strings.SplitSeq(strings.TrimSuffix(file, ".go"), "_") {
				if empty.MatchString(part) {
					t.Errorf("%s/%s: the name says nothing about what is in it", p.short(), file)
				}
			}
		}
	}
}

// TestNothingIsReplaced keeps the product's module usable with "go install": a
// replace directive holds only where the module is the main one.
func TestNothingIsReplaced(t *testing.T) {
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Replace []struct{ Old struct{ Path string } }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Replace {
		t.Errorf("go.mod replaces %s", r.Old.Path)
	}
}

// TestModulesAgree keeps the modules beside the product on its Go version.
func TestModulesAgree(t *testing.T) {
	line := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^go .*$`).FindString(string(text))
	}
	want := line("go.mod")
	files, err := filepath.Glob("*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	deeper, err := filepath.Glob("*/*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, deeper...) {
		if got := line(file); got != want {
			t.Errorf("%s says %q, and go.mod %q", file, got, want)
		}
	}
}
