package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// buildPlatform is the one that the tests build whole images for: all that the
// clouds' libraries need takes minutes to compile.
const buildPlatform = "linux/amd64"

// built are the archives made from the repository, by image.
var built = sync.OnceValues(func() (map[string][]byte, error) { return buildAll("..") })

func buildAll(source string) (map[string][]byte, error) {
	out, err := os.MkdirTemp("", "images-test")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(out)
	archives := map[string][]byte{}
	o, err := parse([]string{"-source", source, "-out", out, "-platforms", buildPlatform, "-version", "v1.2.3"})
	if err == nil {
		err = o.write()
	}
	if err != nil {
		return nil, err
	}
	for _, i := range images {
		if archives[i.name], err = os.ReadFile(filepath.Join(out, i.name+".tar")); err != nil {
			return nil, err
		}
	}
	return archives, nil
}

func archives(t *testing.T) map[string][]byte {
	t.Helper()
	all, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestReproducible builds a copy of the sources, in another folder and without
// version control, and wants the same bytes.
func TestReproducible(t *testing.T) {
	copied := t.TempDir()
	files, err := exec.Command("git", "-C", "..", "ls-files", "--cached", "--others", "--exclude-standard", "*.go", "*go.mod", "*go.sum", "*LICENSE", "licenses.txt").Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(files)) {
		content, err := os.ReadFile(filepath.Join("..", name))
		if errors.Is(err, os.ErrNotExist) {
			continue // removed and not yet committed
		}
		to := filepath.Join(copied, name)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	again, err := buildAll(copied)
	if err != nil {
		t.Fatal(err)
	}
	for name, first := range archives(t) {
		if !bytes.Equal(first, again[name]) {
			t.Errorf("%s: two builds of the same sources differ: %s and %s", name, digest.FromBytes(first), digest.FromBytes(again[name]))
		}
	}
}

// A build is one platform's part of an archive, unpacked.
type build struct {
	platform string
	config   ocispec.ImageConfig
	files    map[string][]byte
	modes    map[string]int64
}

// open follows an archive from its index to the files, and checks each blob
// against what points at it.
func open(t *testing.T, content []byte) (ref string, builds []build) {
	t.Helper()
	layout, _ := untar(t, content)
	get := func(d ocispec.Descriptor, into any) []byte {
		t.Helper()
		content := layout[path.Join("blobs", "sha256", d.Digest.Encoded())]
		if got := digest.FromBytes(content); got != d.Digest || int64(len(content)) != d.Size {
			t.Fatalf("%d bytes of digest %s, and the descriptor says %d and %s", len(content), got, d.Size, d.Digest)
		}
		if into != nil {
			if err := json.Unmarshal(content, into); err != nil {
				t.Fatal(err)
			}
		}
		return content
	}
	var outer, inner ocispec.Index
	if err := json.Unmarshal(layout["index.json"], &outer); err != nil {
		t.Fatal(err)
	}
	get(outer.Manifests[0], &inner)
	for _, d := range inner.Manifests {
		var m ocispec.Manifest
		get(d, &m)
		var config ocispec.Image
		get(m.Config, &config)
		if config.OS != d.Platform.OS || config.Architecture != d.Platform.Architecture {
			t.Errorf("the index says %v and the configuration %v", d.Platform, config.Platform)
		}
		zipped, err := gzip.NewReader(bytes.NewReader(get(m.Layers[0], nil)))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(zipped)
		if err != nil {
			t.Fatal(err)
		}
		if got := digest.FromBytes(layer); got != config.RootFS.DiffIDs[0] {
			t.Errorf("the layer is %s, and the configuration says %s", got, config.RootFS.DiffIDs[0])
		}
		files, modes := untar(t, layer)
		builds = append(builds, build{d.Platform.OS + "/" + d.Platform.Architecture, config.Config, files, modes})
	}
	return outer.Manifests[0].Annotations["io.containerd.image.name"], builds
}

func untar(t *testing.T, content []byte) (files map[string][]byte, modes map[string]int64) {
	t.Helper()
	files, modes = map[string][]byte{}, map[string]int64{}
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, modes
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		modes[h.Name] = h.Mode
	}
}

func TestImages(t *testing.T) {
	for _, i := range images {
		t.Run(i.name, func(t *testing.T) {
			ref, builds := open(t, archives(t)[i.name])
			if want := "ghcr.io/vpcroute/" + i.name + ":v1.2.3"; ref != want {
				t.Errorf("the name is %q, want %q", ref, want)
			}
			var platforms []string
			for _, b := range builds {
				platforms = append(platforms, b.platform)
				t.Run(b.platform, func(t *testing.T) {
					testPrograms(t, i, b)
					testLicenses(t, i, b)
				})
			}
			if got := strings.Join(platforms, ","); got != buildPlatform {
				t.Errorf("platforms are %s, want %s", got, buildPlatform)
			}
		})
	}
}

// testPrograms wants the image's programs, made for its platform and needing
// nothing beside them, and nothing else that could be executed.
func testPrograms(t *testing.T, i image, b build) {
	machines := map[string]elf.Machine{"linux/amd64": elf.EM_X86_64, "linux/arm64": elf.EM_AARCH64}
	var want, executable []string
	for _, p := range i.programs {
		want = append(want, p.path)
		f, err := elf.NewFile(bytes.NewReader(b.files[p.path]))
		if err != nil {
			t.Fatalf("%s: %v", p.path, err)
		}
		if f.Machine != machines[b.platform] {
			t.Errorf("%s is for %s", p.path, f.Machine)
		}
		if f.Section(".interp") != nil {
			t.Errorf("%s needs a dynamic linker", p.path)
		}
	}
	for name, mode := range b.modes {
		if mode&0o111 != 0 {
			executable = append(executable, name)
		}
		if mode&0o022 != 0 {
			t.Errorf("%s may be written by others: %o", name, mode)
		}
	}
	slices.Sort(want)
	slices.Sort(executable)
	if diff := cmp.Diff(want, executable); diff != "" {
		t.Errorf("what can be executed (-want +got):\n%s", diff)
	}
	if b.files[strings.TrimPrefix(b.config.Entrypoint[0], "/")] == nil {
		t.Errorf("the entry point %s is not in the image", b.config.Entrypoint)
	}
}

// testLicenses wants a text for every module that the programs themselves say
// they are built from.
func testLicenses(t *testing.T, i image, b build) {
	have := slices.Collect(maps.Keys(b.files))
	under := func(module string) bool {
		return slices.ContainsFunc(have, func(name string) bool {
			return strings.HasPrefix(name, licensesPath+"/"+module+"/") && len(b.files[name]) > 200
		})
	}
	for _, p := range i.programs {
		info, err := buildinfo.Read(bytes.NewReader(b.files[p.path]))
		if err != nil {
			t.Fatalf("%s: %v", p.path, err)
		}
		modules := []string{"go", info.Main.Path}
		for _, m := range info.Deps {
			modules = append(modules, m.Path)
		}
		// A program of another module has that as its dependency.
		modules = slices.DeleteFunc(modules, func(m string) bool { return m == "" || m == "github.com/vpcroute/vpcroute/images" })
		for _, m := range modules {
			if !under(m) {
				t.Errorf("%s: no licence text of %s", p.path, m)
			}
		}
	}
}

// TestSeveralPlatforms makes an archive of the smallest program for two
// architectures.
func TestSeveralPlatforms(t *testing.T) {
	o, err := parse([]string{"-source", ".."})
	if err != nil {
		t.Fatal(err)
	}
	small := image{name: "small", entrypoint: "/vpcroute", user: "0:0", programs: []program{{".", "./cmd/cni", "vpcroute"}}}
	a := archive{name: "small", tag: "v1"}
	for _, p := range o.platforms {
		files, err := small.files(o, p)
		if err == nil {
			err = a.add(p, small, files)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	content, err := a.bytes()
	if err != nil {
		t.Fatal(err)
	}
	_, builds := open(t, content)
	if len(builds) != 2 || builds[0].platform != "linux/amd64" || builds[1].platform != "linux/arm64" {
		t.Fatalf("%d builds, want those that make images builds: amd64 and arm64", len(builds))
	}
	for _, b := range builds {
		testPrograms(t, small, b)
		testLicenses(t, small, b)
	}
}

func TestOnlyTheAgentIsRoot(t *testing.T) {
	_, controller := open(t, archives(t)["route-controller"])
	if got := controller[0].config.User; got != "65532:65532" {
		t.Errorf("the controller runs as %q, want a number that is not 0, which a kubelet can check", got)
	}
	_, agent := open(t, archives(t)["node-agent"])
	if got := agent[0].config.User; got != "0:0" {
		t.Errorf("the agent runs as %q, want 0:0: it writes root's folders", got)
	}
}

// TestRoots looks for authorities in the one image that speaks to clouds.
func TestRoots(t *testing.T) {
	_, controller := open(t, archives(t)["route-controller"])
	count := 0
	for rest := controller[0].files[rootsPath]; ; count++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		if !c.IsCA {
			t.Errorf("%s is no authority", c.Subject)
		}
	}
	if count < 50 {
		t.Errorf("%d authorities, want Mozilla's list", count)
	}
	if _, agent := open(t, archives(t)["node-agent"]); agent[0].files[rootsPath] != nil {
		t.Error("the agent, which speaks to the API server alone, has a list of authorities")
	}
}

func TestOptions(t *testing.T) {
	for _, tc := range []struct {
		situation string
		args      []string
		wrong     []string // words of the error
	}{
		{"what make uses", []string{"-version", "v1"}, nil},
		{"one image", []string{"-only", "node-agent", "-platforms", "linux/arm64"}, nil},
		{"everything is wrong", []string{"-only", "agent", "-platforms", "arm64,windows/amd64"}, []string{`-only is "agent"`, `has "arm64"`, `has "windows/amd64"`, "linux/arm64"}},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			_, err := parse(tc.args)
			if (err != nil) != (tc.wrong != nil) {
				t.Fatalf("error is %v", err)
			}
			for _, words := range tc.wrong {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("error is %v, want it to say %s", err, words)
				}
			}
		})
	}
}

// TestPackIsTheSame gives the same files in another order, twice, and with the
// folders that they need.
func TestPackIsTheSame(t *testing.T) {
	a, b := file{"usr/a", 0o755, []byte("a")}, file{"usr/share/b", 0o644, []byte("b")}
	first, err := pack([]file{a, b})
	if err != nil {
		t.Fatal(err)
	}
	second, err := pack([]file{b, a, b})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the order of the files shows in the archive")
	}
	var names []string
	for r := tar.NewReader(bytes.NewReader(first)); ; {
		h, err := r.Next()
		if err != nil {
			break
		}
		names = append(names, h.Name)
		if h.ModTime.Unix() > 0 || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s is of %s and belongs to %d %s", h.Name, h.ModTime, h.Uid, h.Uname)
		}
	}
	if diff := cmp.Diff([]string{"usr/", "usr/a", "usr/share/", "usr/share/b"}, names); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}
