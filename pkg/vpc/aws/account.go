package aws

import (
	"context"
	"fmt"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/vpcroute/vpcroute/pkg/vpc"
)

// An Account is who makes the calls, and where: credentials, a region, and what
// else the SDK's configuration says (an endpoint, certificates). It is never
// printed with its keys.
type Account struct{ config awssdk.Config }

// AccountOptions choose among what the SDK finds.
type AccountOptions struct {
	// Region counts more than the environment's and the profile's.
	Region string
	// Profile is the profile of the shared files; empty lets the SDK choose.
	Profile string
}

// OpenAccount searches as all programs built on the SDK do: the environment
// (AWS_ACCESS_KEY_ID …), the shared files with their profiles, a web identity
// (AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE), the container's credentials
// (EKS Pod Identity), the instance's role. It asks no service yet: keys are
// looked for with the first call, and renewed by the SDK.
func OpenAccount(ctx context.Context, o AccountOptions) (*Account, error) {
	var options []func(*config.LoadOptions) error
	if o.Region != "" {
		options = append(options, config.WithRegion(o.Region))
	}
	if o.Profile != "" {
		options = append(options, config.WithSharedConfigProfile(o.Profile))
	}
	c, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, vpc.Errorf(vpc.Denied, "AWS configuration: %w", err)
	}
	return &Account{c}, nil
}

// StaticAccount is an account with one key pair, and a token that may be empty.
func StaticAccount(region, accessKeyID, secretAccessKey, token string) *Account {
	keys := awssdk.Credentials{AccessKeyID: accessKeyID, SecretAccessKey: secretAccessKey, SessionToken: token, Source: "configuration"}
	return &Account{awssdk.Config{Region: region, Credentials: awssdk.CredentialsProviderFunc(func(context.Context) (awssdk.Credentials, error) {
		return keys, nil
	})}}
}

// Format prints the region and nothing else, whatever the verb.
func (a *Account) Format(f fmt.State, _ rune) {
	if a != nil {
		_, _ = fmt.Fprintf(f, "[account in %s]", a.config.Region)
	}
}

// MarshalText hides the keys from encoders.
func (a *Account) MarshalText() ([]byte, error) { return []byte(fmt.Sprint(a)), nil }

// A classed provider gives what goes wrong with credentials its class.
type classed struct{ awssdk.CredentialsProvider }

func (c classed) Retrieve(ctx context.Context) (awssdk.Credentials, error) {
	if c.CredentialsProvider == nil {
		return awssdk.Credentials{}, vpc.Errorf(vpc.Denied, "there are no credentials")
	}
	keys, err := c.CredentialsProvider.Retrieve(ctx)
	if err == nil || ctx.Err() != nil {
		return keys, err
	}
	return keys, &vpc.Error{Class: vpc.Denied, Op: "credentials", Err: err}
}
