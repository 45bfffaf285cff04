package vpcroute_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// licenses are the licenses that what we ship may be under, by words that only
// their text has.
var licenses = []struct{ name, words string }{
	{"Apache-2.0", "Apache License"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD-3-Clause", "Neither the name of"},
	{"BSD-2-Clause", "Redistribution and use in source and binary forms"},
	{"ISC", "Permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"ISC", "Permission to use, copy, modify, and distribute this software for any purpose"},
}

// TestLicenses compares the licenses of all modules that the commands are built
// from with the list that is checked in, and refuses one that is not known to
// go with Apache-2.0.
func TestLicenses(t *testing.T) {
	list := packages(t)
	found := map[string]string{}
	for _, p := range ownPackages(t) {
		if !matches("./cmd/...", p.short()) {
			continue
		}
		for _, dep := range p.Deps {
			m := list[dep].Module
			if m == nil || m.Main || found[m.Path] != "" {
				continue
			}
			name, err := licenseOf(m.Dir)
			if err != nil {
				t.Errorf("%s: %v", m.Path, err)
				continue
			}
			found[m.Path] = name
		}
	}
	var got strings.Builder
	got.WriteString("# The licenses of the modules that the commands are built from. Written by\n# \"make generate\".\n")
	for _, path := range slices.Sorted(maps.Keys(found)) {
		fmt.Fprintf(&got, "%s %s\n", path, found[path])
	}
	const file = "licenses.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(read(t, file), got.String()); diff != "" {
		t.Errorf("the commands are built from other modules than %s says; run \"make generate\" (-listed +found)\n%s", file, diff)
	}
}

// licenseOf tells the license of a module by the text in its folder.
func licenseOf(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "[Ll][Ii][Cc][Ee][Nn][CcSs][Ee]*"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		words := strings.Join(strings.Fields(string(text)), " ")
		for _, l := range licenses {
			if strings.Contains(words, l.words) {
				return l.name, nil
			}
		}
	}
	return "", fmt.Errorf("no license that is known to go with Apache-2.0 in %s", dir)
}
