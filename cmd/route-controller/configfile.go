package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"
)

// What a configuration file says of itself.
const (
	configVersion = "config.vpcroute.io/v1alpha1"
	configKind    = "RouteControllerConfiguration"
)

// readConfig takes from the configuration file what no flag gives. A field is
// named after its flag ("clusterCIDR" for --cluster-cidr) and a list repeats it.
// It returns everything that is wrong.
func (o *options) readConfig() []error {
	if o.configFile == "" {
		return nil
	}
	text, err := os.ReadFile(o.configFile)
	if err != nil {
		return []error{fmt.Errorf("--config: %w", err)}
	}
	var fields map[string]any
	if err := yaml.UnmarshalStrict(text, &fields); err != nil {
		return []error{fmt.Errorf("--config %s: %w", o.configFile, err)}
	}
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("--config %s: %w", o.configFile, fmt.Errorf(format, args...)))
	}
	for name, want := range map[string]string{"apiVersion": configVersion, "kind": configKind} {
		if got := fields[name]; got != want {
			bad("%s is %v: want %s", name, got, want)
		}
		delete(fields, name)
	}
	byField := o.fields()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		flag := byField[strings.ToLower(name)]
		if flag == nil {
			bad("unknown field %q: fields are named after flags, for example clusterCIDR after --cluster-cidr", name)
			continue
		}
		if flag.Changed {
			continue
		}
		for _, value := range values(fields[name]) {
			if err := flag.Value.Set(fmt.Sprint(value)); err != nil {
				bad("%s is %v: %w", name, value, err)
			}
		}
	}
	return errs
}

// fields are the flags by the name of their field, in lower case.
func (o *options) fields() map[string]*pflag.Flag {
	byField := map[string]*pflag.Flag{}
	o.flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" {
			byField[strings.ReplaceAll(f.Name, "-", "")] = f
		}
	})
	return byField
}

func values(v any) []any {
	if list, ok := v.([]any); ok {
		return list
	}
	return []any{v}
}
